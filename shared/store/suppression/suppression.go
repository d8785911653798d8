package suppression

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
	"email-gateway/shared/store/quota"
)

// Reason is why a company must not write to an address.
type Reason string

const (
	// Unsubscribed stops mailings to the address, but not single emails such as invoices.
	Unsubscribed Reason = "UNSUBSCRIBE"
	// Bounced, Complained and Manual stop all emails to the address.
	Bounced    Reason = "BOUNCE"
	Complained Reason = "COMPLAINT"
	Manual     Reason = "MANUAL"
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{Unsubscribed, Bounced, Complained, Manual}
}

// Suppression is an address that a company must not write to. There is one for each
// reason.
type Suppression struct {
	Address   string     `db:"address"` // lower case
	Reason    Reason     `db:"reason"`
	MailingID *uuid.UUID `db:"mailing_id"` // the mailing whose unsubscribe link was used
	Note      *string    `db:"note"`
	CreatedAt time.Time  `db:"created_at"`
}

// Key returns the form in which addresses are compared: all in lower case. A host may distinguish
// Ana@ from ana@, but a suppression must also stop an email to the other spelling.
func Key(address string) string { return strings.ToLower(address) }

// suppressSQL locks at most the one row that it finds by primary key. It keeps the first date and
// the newest note. It does not update a row that already has the note.
const suppressSQL = `
INSERT INTO suppressions AS s (company_id, address, reason, mailing_id, note) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (company_id, address, reason) DO UPDATE SET note = excluded.note
WHERE excluded.note IS NOT NULL AND excluded.note IS DISTINCT FROM s.note`

// Suppress stops the company's emails to an address. A worker also stops those that are in the
// outbox already, when it processes them. Suppress ignores the quota of suppressions, so that
// recipients can always unsubscribe and the provider's feedback is always applied.
func (s *Store) Suppress(ctx context.Context, company uuid.UUID, n Suppression) error {
	address := Key(n.Address)
	if _, err := s.db.ChangeBounded(ctx, pg.HeldRow{Company: company, Name: address}, suppressSQL, company, address, n.Reason, n.MailingID, n.Note); err != nil {
		return fmt.Errorf("suppress address: %w", err)
	}
	return nil
}

// findSuppressionSQL finds the row by primary key and locks nothing.
const findSuppressionSQL = `
SELECT address, reason, mailing_id, note, created_at FROM suppressions WHERE company_id = $1 AND address = $2 AND reason = $3`

// AddSuppression is Suppress for a request of a tenant, and returns the committed suppression. It returns
// *quota.Error if the quota of suppressions would be exceeded. An existing suppression can always be
// added again.
func (s *Store) AddSuppression(ctx context.Context, company uuid.UUID, n Suppression) (Suppression, error) {
	near, err := s.quotas.Near(ctx, company, quota.Demand{quota.Suppressions: 1})
	var added []Suppression
	switch {
	case err != nil:
	case near:
		added, err = quota.InTx(ctx, s.db, company, func(tx *sqlx.Tx, _ time.Duration) ([]Suppression, error) {
			return suppressWithinQuota(ctx, tx, company, n)
		})
	default:
		added, err = pg.InBoundedTx(ctx, s.db, pg.HeldRow{Company: company, Name: Key(n.Address)}, func(tx *sqlx.Tx, _ time.Duration) ([]Suppression, error) {
			return suppress(ctx, tx, company, n)
		})
		err = pg.AsBusy(err)
	}
	if err != nil {
		return Suppression{}, fmt.Errorf("suppress address: %w", err)
	}
	return added[0], nil
}

// suppress suppresses an address and reads the suppression, in a transaction.
func suppress(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, n Suppression) ([]Suppression, error) {
	if _, err := tx.ExecContext(ctx, suppressSQL, company, Key(n.Address), n.Reason, n.MailingID, n.Note); err != nil {
		return nil, pg.Translate(err)
	}
	return find(ctx, tx, company, n)
}

func find(ctx context.Context, db sqlx.QueryerContext, company uuid.UUID, n Suppression) ([]Suppression, error) {
	found := make([]Suppression, 1)
	return found, pg.Translate(sqlx.GetContext(ctx, db, &found[0], findSuppressionSQL, company, Key(n.Address), n.Reason))
}

// isSuppressedSQL finds the row by primary key and locks nothing.
const isSuppressedSQL = `SELECT EXISTS (SELECT FROM suppressions WHERE company_id = $1 AND address = $2 AND reason = $3)`

// suppressWithinQuota is suppress in a transaction that has locked the company's quotas.
func suppressWithinQuota(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, n Suppression) ([]Suppression, error) {
	var suppressed bool
	if err := tx.GetContext(ctx, &suppressed, isSuppressedSQL, company, Key(n.Address), n.Reason); err != nil {
		return nil, pg.Translate(err)
	}
	if !suppressed {
		b, err := quota.OpenBudget(ctx, tx, company, nil, false)
		if err != nil {
			return nil, err
		}
		if err := b.Take(quota.Demand{quota.Suppressions: 1}); err != nil {
			return nil, err
		}
	}
	return suppress(ctx, tx, company, n)
}

// SuppressAs is Suppress by an operator. It returns the committed suppression.
func (s *Store) SuppressAs(ctx context.Context, by audit.Operator, company uuid.UUID, n Suppression) (Suppression, error) {
	var added []Suppression
	changed, err := audit.Apply(ctx, s.db, by, change("suppression.add", company, n.Address, n.Reason), func(tx *sqlx.Tx, _ *audit.Change) (err error) {
		if _, err := audit.Affected(tx.ExecContext(ctx, suppressSQL, company, Key(n.Address), n.Reason, n.MailingID, n.Note)); err != nil {
			return err
		}
		added, err = find(ctx, tx, company, n)
		return err
	})
	if err == nil && !changed { // it was suppressed already
		added, err = find(ctx, s.db, company, n)
	}
	if err != nil {
		return Suppression{}, fmt.Errorf("suppress address: %w", err)
	}
	return added[0], nil
}

// UnsuppressAs is Unsuppress by an operator.
func (s *Store) UnsuppressAs(ctx context.Context, by audit.Operator, company uuid.UUID, address string, reason Reason) error {
	return pg.Wrap("remove suppression", audit.MustChange(audit.ApplyOne(ctx, s.db, by, change("suppression.remove", company, address, reason),
		unsuppressSQL, company, Key(address), reason)))
}

// change returns the audit entry's change. It contains only the masked address, because an audit
// entry outlives the suppression.
func change(action string, company uuid.UUID, address string, reason Reason) audit.Change {
	a := audit.Change{Action: action, Company: company, Details: map[string]any{"address": email.MaskAddress(Key(address))}}
	if reason != "" {
		a.Details["reason"] = reason
	}
	return a
}

// suppressAllSQL is suppressSQL for several addresses. It locks them in sorted order, so that two
// transactions with the same addresses do not deadlock.
const suppressAllSQL = `
INSERT INTO suppressions (company_id, address, reason, note)
SELECT $1, address, $3, $4 FROM unnest($2::text[]) AS address ORDER BY address
ON CONFLICT (company_id, address, reason) DO UPDATE SET note = coalesce(excluded.note, suppressions.note)`

// AddAll suppresses addresses, which are in the form of Key, in the caller's transaction, and returns
// their number. told is the note; "" = none.
func AddAll(
	ctx context.Context, tx *sqlx.Tx, company uuid.UUID, addresses []string, reason Reason, told string,
) (int, error) {
	if len(addresses) == 0 {
		return 0, nil
	}
	var note *string
	if text := pgtext.WithoutNUL(told); text != "" {
		note = &text
	}
	if _, err := tx.ExecContext(ctx, suppressAllSQL, company, pg.TextArray(addresses), reason, note); err != nil {
		return 0, fmt.Errorf("suppress addresses: %w", pg.Translate(err))
	}
	return len(addresses), nil
}

// unsuppressSQL finds rows by the first columns of the primary key and locks the rows of
// one address, four at most.
const unsuppressSQL = `
DELETE FROM suppressions WHERE company_id = $1 AND address = $2 AND ($3 = '' OR reason = $3)`

// Unsuppress deletes a suppression, or all suppressions of the address if reason is "". It returns
// pg.ErrNotFound if there is none.
func (s *Store) Unsuppress(ctx context.Context, company uuid.UUID, address string, reason Reason) error {
	address = Key(address)
	n, err := s.db.ChangeBounded(ctx, pg.HeldRow{Company: company, Name: address}, unsuppressSQL, company, address, reason)
	if err == nil && n == 0 {
		err = pg.ErrNotFound
	}
	return pg.Wrap("remove suppression", err)
}

// listSuppressionsSQL reads along the primary key and locks nothing.
const listSuppressionsSQL = `
SELECT address, reason, mailing_id, note, created_at FROM suppressions
WHERE company_id = $1 AND (address, reason) > ($2, $3) AND ($4 = '' OR address = $4) AND ($5 = '' OR reason = $5)
ORDER BY address, reason LIMIT $6`

// newSuppressionsSQL reads along suppressions_created, in its order, and locks nothing.
const newSuppressionsSQL = `
SELECT address, reason, mailing_id, note, created_at FROM suppressions
WHERE company_id = $1 AND created_at >= $7 AND (created_at, address, reason) > ($8, $2, $3) AND ($4 = '' OR address = $4) AND ($5 = '' OR reason = $5)
ORDER BY created_at, address, reason LIMIT $6`

// Filter selects suppressions to list; zero fields do not filter. AfterAddress and AfterReason are
// those of the last suppression of the previous page. With CreatedAfter, suppressions created at that
// time or later are listed in the order of their creation.
type Filter struct {
	CreatedAfter time.Time
	AfterTime    time.Time // creation time of the last one of the previous page; only with CreatedAfter
	AfterAddress string
	AfterReason  Reason
	Address      string
	Reason       Reason
	Limit        int
}

// Suppressions returns a page of a company's suppressions, ordered by address, or by creation time if CreatedAfter is set.
func (s *Store) Suppressions(ctx context.Context, company uuid.UUID, f Filter) ([]Suppression, error) {
	found := []Suppression{}
	statement, parameters := listSuppressionsSQL, []any{company, f.AfterAddress, f.AfterReason, Key(f.Address), f.Reason, f.Limit}
	if !f.CreatedAfter.IsZero() {
		after := f.AfterTime
		if after.IsZero() {
			after = f.CreatedAfter // every address is greater than ""
		}
		statement, parameters = newSuppressionsSQL, append(parameters, f.CreatedAfter, after)
	}
	err := s.db.SelectContext(ctx, &found, statement, parameters...)
	if err != nil {
		return nil, fmt.Errorf("list suppressions: %w", pg.Translate(err))
	}
	return found, nil
}
