package config

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"email-gateway/shared/environment"
	"email-gateway/shared/store/recipient"
)

// Age is a retention period; 0 = forever.
type Age time.Duration

const day = Age(24 * time.Hour)

var errAge = errors.New("must be days or hours, such as 30d or 36h, or 0 for ever")

// UnmarshalText parses 30d, 36h or 0.
func (a *Age) UnmarshalText(text []byte) error {
	word := string(text)
	if days, ok := strings.CutSuffix(word, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return errAge
		}
		*a = Age(n) * day
		return nil
	}
	d, err := time.ParseDuration(word)
	if err != nil || d < 0 {
		return errAge
	}
	*a = Age(d)
	return nil
}

// Retention has the default retention periods. The database may have other ages for a company.
type Retention struct {
	// Outbox: rows of the outbox after their final state, in days or hours (30d, 36h); 0 is for
	// ever. After that GET reads the log.
	Outbox Age `env:"RETENTION_OUTBOX" envDefault:"30d"`
	// Bodies: html and text of an email, after its final state; it cannot be sent again then. Not
	// set: as long as Outbox.
	Bodies *Age `env:"RETENTION_BODIES"`
	// Files: uploaded files, after their mailing's end.
	Files Age `env:"RETENTION_FILES" envDefault:"30d"`
	// Unstarted: mailings that were uploaded with start=false and never started, after their upload, last change or sendAt,
	// whichever is latest, until they are cancelled and their files deleted. 0 is never.
	Unstarted Age `env:"RETENTION_UNSTARTED" envDefault:"30d"`
	// Entries: entries and rejected lines of a mailing, after its end.
	Entries Age `env:"RETENTION_ENTRIES" envDefault:"365d"`
	// Logs: logs of emails, after they were accepted, by whole months.
	Logs Age `env:"RETENTION_LOGS" envDefault:"365d"`
	// Events: timelines of emails. Not set: as long as Logs.
	Events *Age `env:"RETENTION_EVENTS"`
	// Hashes: CPF and CNPJ, as a hash and encrypted: of a recipient since the last write, of a
	// mailing's entry and of an email since their final state. Not set, or 0: as long as the row
	// that has them.
	Hashes Age `env:"RETENTION_HASHES"`
	// DeletedRecipients: rows of recipients, after they were deleted. At least 367d: an email that
	// was accepted before must not re-create the recipient, and may be scheduled a year ahead. An
	// even older one (rescheduled, retried, of a paused mailing) is sent, but creates no recipient.
	DeletedRecipients Age `env:"RETENTION_DELETED_RECIPIENTS" envDefault:"400d"`
}

// KeepBodies returns Bodies or its default.
func (r *Retention) KeepBodies() Age {
	if r.Bodies == nil {
		return r.Outbox
	}
	return *r.Bodies
}

// KeepEvents returns Events or its default.
func (r *Retention) KeepEvents() Age {
	if r.Events == nil {
		return r.Logs
	}
	return *r.Events
}

const (
	maxAge = 3650 * day
	// scheduled is the minimum of DeletedRecipients: how long after its acceptance an email may create a recipient.
	scheduled = Age(recipient.DeletedKept)
)

// atLeast compares ages. 0 is the longest.
func (a Age) atLeast(b Age) bool { return a == 0 || b != 0 && a >= b }

func (r *Retention) check(f *environment.Faults) {
	for _, kept := range []struct {
		name string
		age  Age
	}{
		{"RETENTION_OUTBOX", r.Outbox},
		{"RETENTION_BODIES", r.KeepBodies()},
		{"RETENTION_FILES", r.Files},
		{"RETENTION_UNSTARTED", r.Unstarted},
		{"RETENTION_ENTRIES", r.Entries},
		{"RETENTION_LOGS", r.Logs},
		{"RETENTION_EVENTS", r.KeepEvents()},
		{"RETENTION_HASHES", r.Hashes},
		{"RETENTION_DELETED_RECIPIENTS", r.DeletedRecipients},
	} {
		f.Must(kept.age == 0 || kept.age >= day && kept.age <= maxAge, kept.name, "must be 1d to 3650d, or 0 for ever")
	}
	// Requests read the log once the row is deleted, and each event of an email refers to the previous one. So log and
	// timeline must not be deleted before the row.
	f.Must(r.Outbox.atLeast(r.KeepBodies()), "RETENTION_BODIES", "must not be longer than RETENTION_OUTBOX")
	f.Must(r.Entries.atLeast(r.Outbox), "RETENTION_ENTRIES", "must not be shorter than RETENTION_OUTBOX")
	f.Must(r.Logs.atLeast(r.Outbox), "RETENTION_LOGS", "must not be shorter than RETENTION_OUTBOX")
	f.Must(r.KeepEvents().atLeast(r.Outbox), "RETENTION_EVENTS", "must not be shorter than RETENTION_OUTBOX")
	f.Must(r.Logs.atLeast(r.KeepEvents()), "RETENTION_EVENTS", "must not be longer than RETENTION_LOGS")
	f.Must(r.DeletedRecipients == 0 || r.DeletedRecipients >= scheduled, "RETENTION_DELETED_RECIPIENTS", "must be 367d or more, or 0 for ever")
}
