package quota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/tenant"
)

// Quota is the name of a limit on what one company may use.
type Quota string

// The quotas. Quotas per day refer to the UTC day.
const (
	ScheduledEmails   Quota = "scheduled_emails"     // emails whose sendAt is still to come
	EmailsPerDay      Quota = "emails_per_day"       // emails accepted, those made from mailings included
	StoredBodyBytes   Quota = "stored_body_bytes"    // html and text of emails in the outbox, and of templates of mailings
	Recipients        Quota = "recipients"           // recipients that are not deleted, pending imports included
	Suppressions      Quota = "suppressions"         // suppressed addresses, one for each reason
	StoredFileBytes   Quota = "stored_file_bytes"    // uploaded files that are kept, and as much for the entries of dry runs
	RunningMailings   Quota = "running_mailings"     // mailings that are QUEUED, PENDING, PROCESSING or SENDING
	MailingRowsPerDay Quota = "mailing_rows_per_day" // lines of uploaded files
)

// All returns all quotas.
func All() []Quota {
	return []Quota{
		ScheduledEmails, EmailsPerDay, StoredBodyBytes, Recipients,
		Suppressions, StoredFileBytes, RunningMailings, MailingRowsPerDay,
	}
}

// Use is how much of a quota a company uses.
type Use struct {
	Quota Quota `db:"quota" json:"quota"`
	Own   bool  `db:"own" json:"own"`    // the limit is the company's own, not the installation's
	Limit int64 `db:"most" json:"limit"` // 0 = unlimited
	Use   int64 `db:"used" json:"use"`
	// Reset is when the usage becomes 0; nil = it decreases as data is deleted or mailings end.
	Reset *time.Time `db:"resets_at" json:"reset,omitempty"`
}

// Error reports that a request would exceed a quota. Nothing was written.
type Error struct {
	Quota      Quota
	Limit, Use int64
	Reset      *time.Time
}

func (e *Error) Error() string {
	return fmt.Sprintf("quota %s is exceeded: the limit is %d, in use are %d", e.Quota, e.Limit, e.Use)
}

// quotaRefused is the SQLSTATE with which a database function reports an exceeded quota.
const quotaRefused = "EG429"

// Refusal returns the *Error for an exceeded quota that a database function reports. It returns
// other errors unchanged.
func Refusal(err error) error {
	var refused *pq.Error
	if !errors.As(err, &refused) || refused.Code != quotaRefused {
		return err
	}
	var detail struct {
		Quota Quota      `json:"quota"`
		Limit int64      `json:"limit"`
		Use   int64      `json:"use"`
		Reset *time.Time `json:"reset"`
	}
	if json.Unmarshal([]byte(refused.Detail), &detail) != nil {
		return err
	}
	return &Error{Quota: detail.Quota, Limit: detail.Limit, Use: detail.Use, Reset: detail.Reset}
}

// setQuotaDefaultsSQL writes the only row of its table, by primary key, unless the row has these
// values already. $1 is a JSON object of all quotas.
const setQuotaDefaultsSQL = `
INSERT INTO quota_defaults AS q (scheduled_emails, emails_per_day, stored_body_bytes, recipients,
                                 suppressions, stored_file_bytes, running_mailings, mailing_rows_per_day)
SELECT * FROM jsonb_to_record($1) AS n (scheduled_emails bigint, emails_per_day bigint, stored_body_bytes bigint, recipients bigint,
                                        suppressions bigint, stored_file_bytes bigint, running_mailings bigint, mailing_rows_per_day bigint)
ON CONFLICT (singleton) DO UPDATE SET
    scheduled_emails = excluded.scheduled_emails, emails_per_day = excluded.emails_per_day, stored_body_bytes = excluded.stored_body_bytes,
    recipients = excluded.recipients, suppressions = excluded.suppressions, stored_file_bytes = excluded.stored_file_bytes,
    running_mailings = excluded.running_mailings, mailing_rows_per_day = excluded.mailing_rows_per_day, updated_at = now()
WHERE (q.scheduled_emails, q.emails_per_day, q.stored_body_bytes, q.recipients, q.suppressions, q.stored_file_bytes, q.running_mailings, q.mailing_rows_per_day)
    IS DISTINCT FROM (excluded.scheduled_emails, excluded.emails_per_day, excluded.stored_body_bytes, excluded.recipients, excluded.suppressions,
                      excluded.stored_file_bytes, excluded.running_mailings, excluded.mailing_rows_per_day)`

// SetQuotaDefaults sets the limits of companies without limits of their own. All quotas must be
// given; 0 is unlimited.
func (s *Store) SetQuotaDefaults(ctx context.Context, limits map[Quota]int64) error {
	encoded, err := json.Marshal(limits)
	if err != nil {
		return fmt.Errorf("set quota defaults: %w", err)
	}
	if _, err := s.db.Exec(ctx, setQuotaDefaultsSQL, string(encoded)); err != nil {
		return fmt.Errorf("set quota defaults: %w", err)
	}
	s.quotas.clear()
	s.files.clear()
	return nil
}

// setQuotasSQL finds and locks the company's one row by primary key. $2 is a JSON object of
// the quotas to change, in which null is the default. It changes nothing if the company has these
// limits already.
const setQuotasSQL = `
INSERT INTO company_quotas AS q (company_id, scheduled_emails, emails_per_day, stored_body_bytes, recipients,
                                 suppressions, stored_file_bytes, running_mailings, mailing_rows_per_day)
SELECT c.id, n.* FROM companies c
CROSS JOIN jsonb_to_record($2::jsonb) AS n (scheduled_emails bigint, emails_per_day bigint, stored_body_bytes bigint, recipients bigint,
                                            suppressions bigint, stored_file_bytes bigint, running_mailings bigint, mailing_rows_per_day bigint)
WHERE c.id = $1 AND (jsonb_strip_nulls($2::jsonb) <> '{}' OR EXISTS (SELECT FROM company_quotas WHERE company_id = $1))
ON CONFLICT (company_id) DO UPDATE SET
    scheduled_emails = CASE WHEN jsonb_exists($2::jsonb, 'scheduled_emails') THEN excluded.scheduled_emails ELSE q.scheduled_emails END,
    emails_per_day = CASE WHEN jsonb_exists($2::jsonb, 'emails_per_day') THEN excluded.emails_per_day ELSE q.emails_per_day END,
    stored_body_bytes = CASE WHEN jsonb_exists($2::jsonb, 'stored_body_bytes') THEN excluded.stored_body_bytes ELSE q.stored_body_bytes END,
    recipients = CASE WHEN jsonb_exists($2::jsonb, 'recipients') THEN excluded.recipients ELSE q.recipients END,
    suppressions = CASE WHEN jsonb_exists($2::jsonb, 'suppressions') THEN excluded.suppressions ELSE q.suppressions END,
    stored_file_bytes = CASE WHEN jsonb_exists($2::jsonb, 'stored_file_bytes') THEN excluded.stored_file_bytes ELSE q.stored_file_bytes END,
    running_mailings = CASE WHEN jsonb_exists($2::jsonb, 'running_mailings') THEN excluded.running_mailings ELSE q.running_mailings END,
    mailing_rows_per_day = CASE WHEN jsonb_exists($2::jsonb, 'mailing_rows_per_day') THEN excluded.mailing_rows_per_day ELSE q.mailing_rows_per_day END,
    updated_at = now()
WHERE EXISTS (SELECT FROM jsonb_each_text($2::jsonb) AS n WHERE n.value IS DISTINCT FROM to_jsonb(q) ->> n.key)`

// ErrInvalid means that there is no such quota, or that its limit is invalid.
var ErrInvalid = errors.New("no such quota, or no such limit")

// SetQuotas sets the company's own limits for these quotas; 0 is unlimited, and nil the
// installation's limit. All processes apply them within 5 s. It returns pg.ErrNotFound if there is no
// such company.
func (s *Store) SetQuotas(ctx context.Context, by audit.Operator, company uuid.UUID, limits map[Quota]*int64) error {
	details := make(map[string]any, len(limits))
	for _, q := range All() {
		limit, given := limits[q]
		switch {
		case given && limit != nil && *limit < 0:
			return fmt.Errorf("set quotas: %s: %w", q, ErrInvalid)
		case given:
			details[string(q)] = limit
		}
	}
	if len(details) != len(limits) {
		return fmt.Errorf("set quotas: %w", ErrInvalid)
	}
	changes, err := json.Marshal(details)
	if err != nil {
		return fmt.Errorf("set quotas: %w", err)
	}
	err = tenant.ChangeCompany(ctx, s.db, by, audit.Change{Action: "company.quota", Company: company, Details: details}, setQuotasSQL, company, string(changes))
	s.quotas.forget(company)
	s.files.forget(company)
	return pg.Wrap("set quotas", err)
}

// companyQuotasSQL reads the company's row by primary key, and what email_gateway_use and email_gateway_count_scheduled
// read. It locks nothing.
const companyQuotasSQL = `
SELECT u.quota, u.own, u.most, coalesce(CASE u.quota WHEN 'scheduled_emails' THEN email_gateway_count_scheduled($1, u.used) END, u.used) AS used, u.resets_at
FROM companies c CROSS JOIN LATERAL email_gateway_use(c.id, true) u WHERE c.id = $1`

// CompanyQuotas returns all quotas of the company with their usage, or pg.ErrNotFound if there is
// no such company.
func (s *Store) CompanyQuotas(ctx context.Context, company uuid.UUID) ([]Use, error) {
	var all []Use
	err := s.db.SelectContext(ctx, &all, companyQuotasSQL, company)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find quotas: %w", pg.Translate(err))
	case len(all) == 0:
		return nil, fmt.Errorf("find quotas: %w", pg.ErrNotFound)
	}
	return inUTC(all), nil
}

// inUTC converts each Reset to UTC, in which it is midnight.
func inUTC(all []Use) []Use {
	for i := range all {
		if all[i].Reset != nil {
			at := all[i].Reset.UTC()
			all[i].Reset = &at
		}
	}
	return all
}

// quotaUseSQL reads what email_gateway_use reads, and locks nothing.
const quotaUseSQL = `SELECT quota, own, most, used, resets_at FROM email_gateway_use($1, $2)`

// Read reads the limits and the usage of a company, in a transaction or outside.
func Read(ctx context.Context, on sqlx.QueryerContext, company uuid.UUID, ofMailings bool) (map[Quota]Use, error) {
	var all []Use
	if err := sqlx.SelectContext(ctx, on, &all, quotaUseSQL, company, ofMailings); err != nil {
		return nil, fmt.Errorf("read quotas: %w", pg.Translate(err))
	}
	use := make(map[Quota]Use, len(all))
	for _, u := range inUTC(all) {
		use[u.Quota] = u
	}
	return use, nil
}
