package outbox

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
	"email-gateway/shared/store/internal/pgtext"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/uuidv7"
)

// MailingJob is a message for the worker that turns a mailing's entries into emails.
type MailingJob struct {
	MailingID   uuid.UUID
	CompanyID   uuid.UUID
	RequestID   string
	StorageURL  string
	Generation  int       // a worker ignores a job of an older generation
	SendAt      time.Time // zero or past = now
	Traceparent string    // of the job's trace; "" = none
}

// insertMailingJobSQL finds the company's lane by dispatch_lanes' unique index and locks nothing. A job does not
// expire: it stays due until it is done.
const insertMailingJobSQL = `
INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, next_at, expires_at)
SELECT $1, l.company_id, l.id, $2, $3, $4::jsonb, greatest(now(), $5), 'infinity'
FROM dispatch_lanes l WHERE l.company_id = $6 AND l.queue = $7 AND l.mailing_id IS NULL`

// InsertMailingJob inserts a mailing's job in the caller's transaction.
func InsertMailingJob(ctx context.Context, tx *sqlx.Tx, j MailingJob) error {
	id := uuidv7.New()
	payload, err := json.Marshal(struct {
		MailingID   string `json:"mailingId"`
		StorageURL  string `json:"storageUrl"`
		Generation  int    `json:"generation"`
		Traceparent string `json:"traceparent,omitempty"`
	}{j.MailingID.String(), j.StorageURL, j.Generation, j.Traceparent})
	if err != nil {
		return fmt.Errorf("encode mailing job: %w", err)
	}
	result, err := tx.ExecContext(ctx, insertMailingJobSQL, id, email.TargetMailing, pgtext.WithoutNUL(j.RequestID), string(pgtext.WithoutEscapedNUL(payload)),
		sql.NullTime{Time: j.SendAt, Valid: !j.SendAt.IsZero()}, j.CompanyID, email.QueueMailings)
	if err != nil {
		return fmt.Errorf("insert mailing job: %w", pg.Translate(err))
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return fmt.Errorf("insert mailing job: %w", lane.ErrNone)
	}
	return nil
}
