package webhook

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
)

// disableAsSQL locks the endpoint by primary key. If the endpoint is disabled already, it changes the reason, so that
// the company cannot enable it.
const disableAsSQL = `
UPDATE webhook_endpoints SET
    status = 'DISABLED', disabled_reason = 'OPERATOR', disabled_at = coalesce(disabled_at, now()), lease_token = NULL, lease_until = NULL, updated_at = now()
WHERE id = $1 AND company_id = $2 AND disabled_reason IS DISTINCT FROM 'OPERATOR'`

// DisableAs disables the endpoint for an operator. Its company cannot enable it then.
func (s *Store) DisableAs(ctx context.Context, by audit.Operator, company, id uuid.UUID) error {
	changed, err := audit.Apply(ctx, s.db, by, audit.Change{Action: "webhook.disable", Company: company, Subject: id.String()}, func(tx *sqlx.Tx, _ *audit.Change) error {
		if _, err := audit.Affected(tx.ExecContext(ctx, disableAsSQL, id, company)); err != nil {
			return err
		}
		var e Endpoint
		if err := tx.GetContext(ctx, &e, findSQL, id, company); err != nil {
			return err
		}
		return addDisabled(ctx, tx, e)
	})
	if err == nil && !changed { // it is disabled already, or does not exist
		_, err = s.Find(ctx, company, id)
	}
	return pg.Wrap("disable webhook endpoint", err)
}

// disableAllSQL is disableAsSQL for every enabled endpoint. It reads the whole table.
const disableAllSQL = `
UPDATE webhook_endpoints SET
    status = 'DISABLED', disabled_reason = 'OPERATOR', disabled_at = now(), lease_token = NULL, lease_until = NULL, updated_at = now()
WHERE disabled_reason IS NULL`

// DisableAllIn disables the enabled endpoints of all companies as DisableAs does, without an event for each, and returns
// how many they were. Their disabled_at is the time of the transaction, by which they are found to be enabled again.
func DisableAllIn(ctx context.Context, tx *sqlx.Tx) (int, error) {
	n, err := audit.Affected(tx.ExecContext(ctx, disableAllSQL))
	if errors.Is(err, audit.ErrUnchanged) {
		err = nil
	}
	return n, pg.Wrap("disable webhook endpoints", err)
}

// EnableAs enables the endpoint for an operator, even if an operator has disabled it.
func (s *Store) EnableAs(ctx context.Context, by audit.Operator, company, id uuid.UUID) error {
	changed, err := audit.Apply(ctx, s.db, by, audit.Change{Action: "webhook.enable", Company: company, Subject: id.String()}, func(tx *sqlx.Tx, _ *audit.Change) error {
		if _, err := audit.Affected(tx.ExecContext(ctx, enableSQL, id, company, true)); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, hurrySQL, id, company)
		return err
	})
	if err == nil && !changed { // it is enabled already, or does not exist
		_, err = s.Find(ctx, company, id)
	}
	return pg.Wrap("enable webhook endpoint", err)
}
