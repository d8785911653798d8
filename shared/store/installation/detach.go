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
	ID       uuid.UUID `db:"id" json:"id"`             // the new one
	Before   uuid.UUID `db:"before" json:"before"`     // that of the original
	Webhooks int       `db:"webhooks" json:"webhooks"` // how many endpoints were disabled
	// Repeated: an earlier Detach did this, and nothing was changed.
	Repeated bool `db:"-" json:"repeated,omitempty"`
}

// databaseSQL names the database: its oid in the server, and the history of its data. A copy in the same server has another oid,
// one in another server, or of a restored base backup, another history.
const databaseSQL = `(SELECT oid FROM pg_database WHERE datname = current_database()) || '.' || email_gateway_history()`

// detachedSQL reads the last detach, backward along operator_audit_age, if it was made in this database, not in one of which this
// is a copy, and the installation has sent nothing since: sending was held then and still is, no endpoint is enabled, and no api
// has marked a storage.
const detachedSQL = `
SELECT i.id, (a.details->>'before')::uuid AS before, (a.details->>'webhooks')::integer AS webhooks
FROM installation i, provider_gate g,
    (SELECT subject, details, at FROM operator_audit WHERE action = 'installation.detach' ORDER BY at DESC, id DESC LIMIT 1) a
WHERE i.singleton AND i.id::text = a.subject AND i.storage_marked_at IS NULL AND g.id = 1 AND g.held_at <= a.at
  AND a.details->>'database' = ` + databaseSQL + `
  AND NOT EXISTS (SELECT FROM webhook_endpoints WHERE status <> 'DISABLED')`

// detachSQL updates the only row, by installation_pkey.
const detachSQL = `
UPDATE installation i SET id = gen_random_uuid(), storage_marked_at = NULL
FROM installation was WHERE i.singleton AND was.singleton
RETURNING i.id, was.id, ` + databaseSQL

// Detach makes a copy of a database an installation of its own, in one commit: with a new id, so that its programs
// refuse the storage, the Redis and the RabbitMQ of the original; with all sending held until
// breaker.Store.ReleaseBreaker; and with each webhook endpoint disabled. It returns ErrRunning if a dispatcher or
// worker counts as running. Repeated before anything was sent, it changes nothing and returns the first result: a
// second id would leave no row with the id of the original last, which undoes it.
func (s *Store) Detach(ctx context.Context, by audit.Operator) (done Detached, err error) {
	_, err = audit.Apply(ctx, s.db, by, audit.Change{Action: "installation.detach"}, func(tx *sqlx.Tx, a *audit.Change) error {
		running, err := process.AnyLive(ctx, tx)
		if err != nil {
			return err
		}
		if running {
			return ErrRunning
		}
		var repeated []Detached
		if err := tx.SelectContext(ctx, &repeated, detachedSQL); err != nil {
			return pg.Translate(err)
		}
		if len(repeated) > 0 {
			done = repeated[0]
			done.Repeated = true
			return audit.ErrUnchanged
		}
		var database string
		if err := tx.QueryRowxContext(ctx, detachSQL).Scan(&done.ID, &done.Before, &database); err != nil {
			return pg.Translate(err)
		}
		if err := breaker.HoldIn(ctx, tx, by.Reason); err != nil {
			return err
		}
		done.Webhooks, err = webhook.DisableAllIn(ctx, tx)
		a.Subject, a.Details = done.ID.String(), map[string]any{"before": done.Before, "webhooks": done.Webhooks, "database": database}
		return err
	})
	return done, pg.Wrap("detach installation", err)
}
