package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/uuidv7"
)

// Secrets are the encrypted secrets of one endpoint.
type Secrets struct {
	ID        uuid.UUID `db:"id"`
	CompanyID uuid.UUID `db:"company_id"` // the encryption is bound to it
	Secret    []byte    `db:"secret_enc"`
	OldSecret []byte    `db:"old_secret_enc"` // nil = none
}

const (
	// secretsSQL reads along webhook_endpoints_pkey and locks nothing.
	secretsSQL = `SELECT id, company_id, secret_enc, old_secret_enc FROM webhook_endpoints WHERE id > $1 ORDER BY id LIMIT $2`

	// reencryptSecretsSQL locks one row by primary key. It keeps a secret that was rotated meanwhile.
	reencryptSecretsSQL = `
UPDATE webhook_endpoints SET
    secret_enc = CASE WHEN secret_enc = $2 THEN $3 ELSE secret_enc END,
    old_secret_enc = CASE WHEN old_secret_enc = $4 THEN $5 ELSE old_secret_enc END
WHERE id = $1`
)

// Secrets lists the secrets of at most limit endpoints of all companies, by id, after the id after.
func (s *Store) Secrets(ctx context.Context, after uuid.UUID, limit int) ([]Secrets, error) {
	var all []Secrets
	if err := s.db.Select(ctx, &all, secretsSQL, after, limit); err != nil {
		return nil, fmt.Errorf("list webhook secrets: %w", err)
	}
	return all, nil
}

// Reencrypt replaces secrets that were encrypted with an older key.
func (s *Store) Reencrypt(ctx context.Context, was, now Secrets) error {
	if _, err := s.exec(ctx, reencryptSecretsSQL, was.ID, was.Secret, now.Secret, was.OldSecret, now.OldSecret); err != nil {
		return fmt.Errorf("encrypt webhook secrets again: %w", err)
	}
	return nil
}

// Each of these statements deletes the oldest rows along the primary key, whose ids contain their time, and locks them.
const (
	cleanDeliveriesSQL = `
DELETE FROM webhook_deliveries WHERE id IN (
    SELECT id FROM webhook_deliveries
    WHERE id < $1 AND status IN ('DELIVERED', 'FAILED') AND updated_at < now() - $2 * interval '1 ms' ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED)`

	cleanReplaysSQL = `
DELETE FROM webhook_replays WHERE id IN (
    SELECT id FROM webhook_replays WHERE id < $1 AND finished_at < now() - $2 * interval '1 ms' ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED)`
)

// CleanDeliveries deletes deliveries that ended longer than age ago, at most limit, and returns the number deleted.
func (s *Store) CleanDeliveries(ctx context.Context, age time.Duration, limit int) (int, error) {
	n, err := s.exec(ctx, cleanDeliveriesSQL, uuidv7.First(uuidv7.Now().Add(-age)), age.Milliseconds(), limit)
	return int(n), pg.Wrap("clean webhook deliveries", err)
}

// CleanReplays is CleanDeliveries for replays.
func (s *Store) CleanReplays(ctx context.Context, age time.Duration, limit int) (int, error) {
	n, err := s.exec(ctx, cleanReplaysSQL, uuidv7.First(uuidv7.Now().Add(-age)), age.Milliseconds(), limit)
	return int(n), pg.Wrap("clean webhook replays", err)
}
