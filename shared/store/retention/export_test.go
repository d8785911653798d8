package retention

import "email-gateway/shared/store/internal/pg"

// Statements, to ask Postgres for their plans.
const (
	AlongKeySQL = pg.AlongKeySQL

	EraseEntryHashesSQL     = eraseEntryHashesSQL
	EraseEntryValuesSQL     = eraseEntryValuesSQL
	EraseTemplatesSQL       = eraseTemplatesSQL
	EraseOutboxHashesSQL    = eraseOutboxHashesSQL
	EraseRecipientHashesSQL = eraseRecipientHashesSQL
	CleanRecipientsSQL      = cleanRecipientsSQL
	DeleteEntriesSQL        = deleteEntriesSQL
	DeleteRejectsSQL        = deleteRejectsSQL
	DueFilesSQL             = dueFilesSQL
	EraseBodiesSQL          = eraseBodiesSQL
	EraseCompanyBodiesSQL   = eraseCompanyBodiesSQL
	KeptEntriesSQL          = keptEntriesSQL
	PurgeAggregatesSQL      = purgeAggregatesSQL
	PurgeCompanyLogsSQL     = purgeCompanyLogsSQL
	PurgeEventsSQL          = purgeEventsSQL
	PurgeLogsSQL            = purgeLogsSQL
	PurgeOutboxSQL          = purgeOutboxSQL
)
