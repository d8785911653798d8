package store

import "email-gateway/shared/store/internal/pg"

// The statements of the mailings' loops, to ask Postgres for their plans.
const (
	AlongKeySQL     = pg.AlongKeySQL
	CountLaneSQL    = countLaneSQL
	EntryRowsSQL    = entryRowsSQL
	MoveJobSQL      = moveJobSQL
	NextEntriesSQL  = nextEntriesSQL
	RejectRowsSQL   = rejectRowsSQL
	OpenMailingsSQL = openMailingsSQL
	RecoverSQL      = recoverSQL
	SettlingSQL     = settlingSQL
	TallySQL        = tallySQL
	ToCancelSQL     = toCancelSQL
	ToRetrySQL      = toRetrySQL
)
