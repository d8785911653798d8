package mailing

import (
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/recipient"
)

// expandScalars are the parameters of expand.sql besides the entries.
type expandScalars struct {
	job  *Job
	step *Expansion
	mode recipientMode
	wait time.Duration
}

// next returns the job that continues the expansion, or the zero value if there is none.
func (s expandScalars) next() Continuation {
	if s.step.Continue == nil {
		return Continuation{}
	}
	return *s.step.Continue
}

// expandParameters are the parameters of expand.sql.
var expandParameters = pg.Parameters[expandScalars, ExpandedEntry]{
	Scalars: []pg.Scalar[expandScalars]{
		pg.One("lock_timeout", "text", func(s expandScalars) any { return pg.LockTimeout(s.wait) }),
		pg.One("mailing_id", "uuid", func(s expandScalars) any { return s.job.ID }),
		pg.One("generation", "integer", func(s expandScalars) any { return s.job.Generation }),
		pg.One("heartbeat", "timestamptz", func(s expandScalars) any { return s.job.Heartbeat }),
		pg.One("expanded_to", "uuid", func(s expandScalars) any { return pg.OptionalUUID(s.job.ExpandedTo) }),
		pg.One("to", "uuid", func(s expandScalars) any { return pg.OptionalUUID(s.step.To) }),
		pg.One("lines", "integer", func(s expandScalars) any { return s.step.Lines }),
		pg.One("finished", "bool", func(s expandScalars) any { return s.step.Finished }),
		pg.One("waiting_for", "text", func(s expandScalars) any { return string(s.step.Waiting.For) }),
		pg.One("waiting_until", "timestamptz", func(s expandScalars) any { return pg.OptionalTime(s.step.Waiting.Until) }),
		pg.One("job_id", "uuid", func(s expandScalars) any { return pg.OptionalUUID(s.next().ID) }),
		pg.One("delay_ms", "bigint", func(s expandScalars) any { return s.next().Delay.Milliseconds() }),
		pg.One("count", "bigint", func(s expandScalars) any { return len(s.step.Entries) }),
		pg.One("recipients", "text", func(s expandScalars) any { return string(s.mode) }),
		pg.One("create_from", "uuid", func(expandScalars) any { return recipient.CreateFrom() }),
		pg.One("no_new_recipients", "bool", func(s expandScalars) any { return s.step.NoNewPeople }),
		pg.One("priority", "smallint", func(expandScalars) any { return email.MailingPriority }),
	},
	Columns: []pg.Column[ExpandedEntry]{
		pg.Each("id", "uuid", pg.UUIDs, func(e *ExpandedEntry) uuid.UUID { return e.ID }),
		pg.Each("invalid_reason", "text", pg.OptionalTexts, func(e *ExpandedEntry) string { return e.InvalidReason }),
		pg.Each("details", "text", pg.OptionalTexts, func(e *ExpandedEntry) string { return e.Details }),
		pg.Each("recipient_id", "uuid", pg.UUIDs, func(e *ExpandedEntry) uuid.UUID { return e.RecipientID }),
		pg.Each("payload", "jsonb", pg.JSONBs, func(e *ExpandedEntry) []byte { return e.payload }),
	},
}
