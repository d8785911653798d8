package event

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
	"email-gateway/shared/uuidv7"
)

// Types of events of a company, which are about none of its emails. Package webhook writes WebhookDisabled, the
// reputation guard the others.
const (
	ReputationWarning email.EventType = "REPUTATION_WARNING"
	MailingsPaused    email.EventType = "MAILINGS_PAUSED"
	MailingsResumed   email.EventType = "MAILINGS_RESUMED"
	WebhookDisabled   email.EventType = "WEBHOOK_DISABLED"
)

// CompanyTypes lists the types of events of a company, sorted.
func CompanyTypes() []email.EventType {
	return []email.EventType{MailingsPaused, MailingsResumed, ReputationWarning, WebhookDisabled}
}

// Types lists all types of the feed, sorted.
func Types() []email.EventType {
	all := append(email.EventTypes(), CompanyTypes()...)
	slices.Sort(all)
	return all
}

// addSQL inserts one row. A trigger adds it to the feed, after all events of the feed.
const addSQL = `INSERT INTO company_events (id, company_id, type, metadata) VALUES ($1, $2, $3, $4)`

// AddOfCompany adds an event of the company in the caller's transaction.
func AddOfCompany(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, kind email.EventType, metadata any) error {
	id := uuidv7.New()
	encoded, err := json.Marshal(metadata)
	if err != nil {
		return fmt.Errorf("encode metadata: %w", err)
	}
	if _, err := tx.ExecContext(ctx, addSQL, id, company, string(kind), string(pgtext.WithoutEscapedNUL(encoded))); err != nil {
		return fmt.Errorf("add an event of the company: %w", pg.Translate(err))
	}
	return nil
}

// purgeCompanySQL deletes along company_events_age and locks what it deletes.
const purgeCompanySQL = `
DELETE FROM company_events WHERE id = ANY (ARRAY(
    SELECT id FROM company_events WHERE created_at < now() - $1 * interval '1 ms' ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))`
