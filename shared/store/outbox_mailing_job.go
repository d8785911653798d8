package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
)

// mailingJob is a message for the worker that turns a mailing's entries into emails.
type mailingJob struct {
	mailing    uuid.UUID
	company    uuid.UUID
	requestID  string
	storageURL string
	generation int       // a worker leaves a job of an older one alone
	sendAt     time.Time // zero or past = now
	trace      string    // the traceparent it belongs to; "" = none
}

// insertMailingJobSQL finds the company's lane by dispatch_lanes' unique index and
// locks nothing. A job does not expire: it is due until it is done.
const insertMailingJobSQL = `
INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, next_at, expires_at)
SELECT $1, l.company_id, l.id, $2, $3, $4::jsonb, greatest(now(), $5), 'infinity'
FROM dispatch_lanes l WHERE l.company_id = $6 AND l.queue = $7 AND l.mailing_id IS NULL`

// insertMailingJob writes a mailing's job in the transaction that makes it necessary.
func insertMailingJob(ctx context.Context, tx *sqlx.Tx, j mailingJob) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make a job's id: %w", err)
	}
	payload, err := json.Marshal(struct {
		MailingID   string `json:"mailingId"`
		StorageURL  string `json:"storageUrl"`
		Generation  int    `json:"generation"`
		Traceparent string `json:"traceparent,omitempty"`
	}{j.mailing.String(), j.storageURL, j.generation, j.trace})
	if err != nil {
		return fmt.Errorf("encode mailing job: %w", err)
	}
	result, err := tx.ExecContext(ctx, insertMailingJobSQL, id, email.TargetMailing, pg.WithoutNUL(j.requestID), string(pg.WithoutEscapedNUL(payload)),
		sql.NullTime{Time: j.sendAt, Valid: !j.sendAt.IsZero()}, j.company, email.QueueMailings)
	if err != nil {
		return fmt.Errorf("insert mailing job: %w", pg.Translate(err))
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return fmt.Errorf("insert mailing job: %w", ErrNoLane)
	}
	return nil
}
