package store

import (
	"database/sql"
	_ "embed"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
)

// expandSQL takes one step of a mailing's expansion.
//
//go:embed sql/expand.sql
var expandSQL string

// expandScalars are what expand.sql takes besides the entries.
type expandScalars struct {
	job    *MailingJob
	step   *Expansion
	people peopleMode
	wait   time.Duration
}

// next is the job that goes on, the empty one if there is none.
func (s expandScalars) next() Continuation {
	if s.step.Continue == nil {
		return Continuation{}
	}
	return *s.step.Continue
}

// expandParameters are those of expand.sql.
var expandParameters = parameters[expandScalars, ExpandedEntry]{
	scalars: []scalar[expandScalars]{
		{"lock_timeout", "text", func(s expandScalars) any { return lockTimeout(s.wait) }},
		{"mailing_id", "uuid", func(s expandScalars) any { return s.job.ID }},
		{"generation", "integer", func(s expandScalars) any { return s.job.Generation }},
		{"heartbeat", "timestamptz", func(s expandScalars) any { return s.job.Heartbeat }},
		{"expanded_to", "uuid", func(s expandScalars) any { return optionalUUID(s.job.ExpandedTo) }},
		{"to", "uuid", func(s expandScalars) any { return optionalUUID(s.step.To) }},
		{"lines", "integer", func(s expandScalars) any { return s.step.Lines }},
		{"finished", "bool", func(s expandScalars) any { return s.step.Finished }},
		{"waiting_for", "text", func(s expandScalars) any { return string(s.step.Waiting.For) }},
		{"waiting_until", "timestamptz", func(s expandScalars) any { return optionalTime(s.step.Waiting.Until) }},
		{"job_id", "uuid", func(s expandScalars) any { return optionalUUID(s.next().ID) }},
		{"delay_ms", "bigint", func(s expandScalars) any { return s.next().Delay.Milliseconds() }},
		{"count", "bigint", func(s expandScalars) any { return len(s.step.Entries) }},
		{"people", "integer", func(s expandScalars) any { return s.people }},
		{"people_from", "uuid", func(expandScalars) any { return peopleFrom() }},
		{"no_new_people", "bool", func(s expandScalars) any { return s.step.NoNewPeople }},
		{"priority", "smallint", func(expandScalars) any { return email.MailingPriority }},
		{"no_deadline_ms", "double precision", func(expandScalars) any { return noDeadline.Milliseconds() }},
	},
	columns: []column[ExpandedEntry]{
		each("id", "uuid", uuids, func(e *ExpandedEntry) uuid.UUID { return e.ID }),
		each("invalid_reason", "text", optionalTexts, func(e *ExpandedEntry) string { return e.InvalidReason }),
		each("details", "text", optionalTexts, func(e *ExpandedEntry) string { return e.Details }),
		each("recipient_id", "uuid", uuids, func(e *ExpandedEntry) uuid.UUID { return e.RecipientID }),
		each("payload", "jsonb", jsonbs, func(e *ExpandedEntry) []byte { return e.payload }),
	},
}

func optionalUUID(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

func optionalTime(t time.Time) sql.NullTime { return sql.NullTime{Time: t, Valid: !t.IsZero()} }
