package store

// The statements of the mailings' loops, to ask Postgres for their plans.
const (
	AlongKeySQL     = alongKeySQL
	CountLaneSQL    = countLaneSQL
	NextEntriesSQL  = nextEntriesSQL
	OpenMailingsSQL = openMailingsSQL
	RecoverSQL      = recoverSQL
	SettlingSQL     = settlingSQL
	TallySQL        = tallySQL
	ToCancelSQL     = toCancelSQL
	ToRetrySQL      = toRetrySQL
)
