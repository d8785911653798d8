package installation

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/process"
	"email-gateway/shared/store/webhook"
)

// ErrRunning: dispatchers or workers use the database.
var ErrRunning = errors.New("programs use this database")

// Detached is the result of Detach.
type Detached struct {
	ID       uuid.UUID `json:"id"`       // the new one
	Before   uuid.UUID `json:"before"`   // that of the original
	Webhooks int       `json:"webhooks"` // how many endpoints were disabled
}

// detachSQL updates the only row, by installation_pkey.
const detachSQL = `
UPDATE installation i SET id = gen_random_uuid(), storage_marked_at = NULL
FROM installation was WHERE i.singleton AND was.singleton
RETURNING i.id, was.id`

// Detach makes a copy of a database an installation of its own, in one commit: with a new id, so that its programs refuse the
// storage, the Redis and the RabbitMQ of the original; with all sending held until breaker.Store.ReleaseBreaker; and with each
// webhook endpoint disabled. It returns ErrRunning if a dispatcher or worker counts as running.
func (s *Store) Detach(ctx context.Context, by audit.Operator) (done Detached, err error) {
	_, err = audit.Apply(ctx, s.db, by, audit.Change{Action: "installation.detach"}, func(tx *sqlx.Tx, a *audit.Change) error {
		running, err := process.AnyLive(ctx, tx)
		if err != nil {
			return err
		}
		if running {
			return ErrRunning
		}
		if err := tx.QueryRowxContext(ctx, detachSQL).Scan(&done.ID, &done.Before); err != nil {
			return pg.Translate(err)
		}
		if err := breaker.HoldIn(ctx, tx, by.Reason); err != nil {
			return err
		}
		done.Webhooks, err = webhook.DisableAllIn(ctx, tx)
		a.Subject, a.Details = done.ID.String(), map[string]any{"before": done.Before, "webhooks": done.Webhooks}
		return err
	})
	return done, pg.Wrap("detach installation", err)
}
