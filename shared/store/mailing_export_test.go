package store

// The statements of the mailings' loops, to ask Postgres for their plans.
const (
	AlongKeySQL     = alongKeySQL
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
