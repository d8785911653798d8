package config

import (
	"email-gateway/shared/environment"
	"email-gateway/shared/store/quota"
)

// Quotas are the limits of companies without limits of their own; 0 is unlimited. All apis must
// have the same settings: those of the api that started last apply.
type Quotas struct {
	// ScheduledEmails: emails of a company whose sendAt is in the future; 0 is unlimited, as in all
	// quotas.
	ScheduledEmails int64 `env:"QUOTA_SCHEDULED_EMAILS" envDefault:"100000"`
	// EmailsPerDay: emails that the api accepts from a company in a UTC day, including those of mailings.
	EmailsPerDay int64 `env:"QUOTA_EMAILS_PER_DAY" envDefault:"1000000"`
	// StoredBodyBytes: bytes of html and text stored for a company's emails and mailings.
	StoredBodyBytes int64 `env:"QUOTA_STORED_BODY_BYTES" envDefault:"10737418240"`
	// Recipients: recipients of a company, except deleted ones.
	Recipients int64 `env:"QUOTA_RECIPIENTS" envDefault:"10000000"`
	// Suppressions: suppressed addresses of a company, counted once for each reason.
	Suppressions int64 `env:"QUOTA_SUPPRESSIONS" envDefault:"10000000"`
	// StoredFileBytes: bytes of a company's uploaded files that are stored, and of the entries of
	// its dry runs, which count as much as their files.
	StoredFileBytes int64 `env:"QUOTA_STORED_FILE_BYTES" envDefault:"10737418240"`
	// RunningMailings: mailings of a company that are queued or being sent.
	RunningMailings int64 `env:"QUOTA_RUNNING_MAILINGS" envDefault:"20"`
	// MailingRowsPerDay: lines of the files that a company uploads in a UTC day.
	MailingRowsPerDay int64 `env:"QUOTA_MAILING_ROWS_PER_DAY" envDefault:"10000000"`
}

// Limits returns the quotas by their names in the database.
func (q *Quotas) Limits() map[quota.Quota]int64 {
	return map[quota.Quota]int64{
		quota.ScheduledEmails: q.ScheduledEmails, quota.EmailsPerDay: q.EmailsPerDay, quota.StoredBodyBytes: q.StoredBodyBytes,
		quota.Recipients: q.Recipients, quota.Suppressions: q.Suppressions, quota.StoredFileBytes: q.StoredFileBytes,
		quota.RunningMailings: q.RunningMailings, quota.MailingRowsPerDay: q.MailingRowsPerDay,
	}
}

func (q *Quotas) check(f *environment.Faults) {
	for _, given := range []struct {
		name  string
		limit int64
	}{
		{"QUOTA_SCHEDULED_EMAILS", q.ScheduledEmails},
		{"QUOTA_EMAILS_PER_DAY", q.EmailsPerDay},
		{"QUOTA_STORED_BODY_BYTES", q.StoredBodyBytes},
		{"QUOTA_RECIPIENTS", q.Recipients},
		{"QUOTA_SUPPRESSIONS", q.Suppressions},
		{"QUOTA_STORED_FILE_BYTES", q.StoredFileBytes},
		{"QUOTA_RUNNING_MAILINGS", q.RunningMailings},
		{"QUOTA_MAILING_ROWS_PER_DAY", q.MailingRowsPerDay},
	} {
		f.Must(given.limit >= 0, given.name, "must be 0 (unlimited) or more")
	}
}
