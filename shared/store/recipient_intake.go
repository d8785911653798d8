package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
)

// NewRecipients are the recipients of one request, to be accepted together or not
// at all.
type NewRecipients struct {
	CompanyID   uuid.UUID
	RequestID   string
	CreatedAt   time.Time
	Recipients  []NewRecipient  // at least one
	Idempotency *IdempotencyKey // nil = none
	Traceparent string          // the trace they belong to; "" = none
}

// NewRecipient is a person to write down. When the same one stands in a request
// twice, the later of the two has the last word.
type NewRecipient struct {
	OutboxID uuid.UUID // UUIDv7, ascending in the order of the request
	Recipient
	CPFCNPJ []byte // encrypted; nil = none
}

// intakePayload is what the outbox row of an intake holds: everything but the number,
// which stands encrypted in a column of its own.
type intakePayload struct {
	ID          uuid.UUID `json:"id"`
	ExternalID  string    `json:"externalId,omitempty"`
	CPFCNPJHash string    `json:"cpfCnpjHash,omitempty"`
	RazaoSocial string    `json:"razaoSocial,omitempty"`
	Nome        string    `json:"nome,omitempty"`
	Email       string    `json:"email"`
	Traceparent string    `json:"traceparent,omitempty"` // for the dispatcher
}

// AcceptRecipients commits the recipients and returns nil: from here on none of them
// can be lost, and an email may name them though RabbitMQ has yet to carry them.
//
// Errors are those of Accepter.Accept: *KeyUsedError, *QuotaError, ErrNoLane, ErrInProgress, ErrBusy,
// ErrUnavailable (nothing written), ErrUnknownOutcome (ask Exists for the first OutboxID).
func (s *Store) AcceptRecipients(ctx context.Context, r NewRecipients) error {
	columns, err := intakeColumns(r)
	if err != nil {
		return err
	}
	near, err := s.quotas.near(ctx, r.CompanyID, demand{QuotaRecipients: int64(len(r.Recipients))})
	if err != nil {
		return err
	}
	// A key that expires between the insert and the look-up makes a second round.
	for range 3 {
		insert := s.insertIntakes
		if near {
			insert = s.insertIntakesWithinQuota
		}
		inserted, err := insert(ctx, r, columns)
		if err != nil || inserted {
			return err
		}
		// The insert may have met itself: it is run again when its answer was lost.
		stands, err := s.Exists(ctx, r.Recipients[0].OutboxID)
		switch {
		case err != nil:
			return errors.Join(ErrUnknownOutcome, err)
		case stands:
			return nil
		}
		if r.Idempotency == nil {
			return ErrNoLane
		}
		used, err := s.usedKey(ctx, r.CompanyID, *r.Idempotency)
		switch {
		case err == nil:
			return &KeyUsedError{Answer: used}
		case !errors.Is(err, ErrNotFound):
			return err
		}
	}
	return ErrNoLane
}

// insertIntakesSQL writes a request's rows and its idempotency key in one commit, or
// nothing when the key is there already; another transaction that is inserting the
// same key is waited for, $19 ms at most. The lane is found by dispatch_lanes' unique index. An
// outbox id already there is this very request, run once more.
const insertIntakesSQL = `
WITH lane AS (
    SELECT id FROM dispatch_lanes
    WHERE company_id = $1 AND queue = $2 AND mailing_id IS NULL AND (SELECT set_config('lock_timeout', $19, true)) IS NOT NULL
), input AS (
    SELECT t.*, lane.id AS lane_id
    FROM unnest($6::uuid[], $7::uuid[], $8::text[], $9::jsonb[], $10::bytea[])
      AS t(outbox_id, recipient_id, email, payload, cpf_cnpj_enc)
    CROSS JOIN lane
), key AS (
    INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
    SELECT $1, $12, $13, $14, $15::smallint, $16, $17, now() + $18 * interval '1 ms' FROM lane WHERE $11
    ON CONFLICT (company_id, route, key) DO NOTHING
    RETURNING key
), rows AS (
    INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, cpf_cnpj_enc, created_at, expires_at)
    SELECT outbox_id, $1, lane_id, $3, $4, payload, cpf_cnpj_enc, $5, 'infinity'
    FROM input WHERE NOT $11 OR EXISTS (SELECT FROM key)
    ON CONFLICT (id) DO NOTHING
    RETURNING id
)
INSERT INTO recipient_intakes (recipient_id, outbox_id, company_id, email)
SELECT i.recipient_id, i.outbox_id, $1, i.email
FROM input i WHERE i.outbox_id IN (SELECT id FROM rows)`

func (s *Store) insertIntakes(ctx context.Context, r NewRecipients, columns []any) (inserted bool, err error) {
	row := heldRow{r.CompanyID, r.Recipients[0].OutboxID.String()} // nobody else's
	if r.Idempotency != nil {
		row = r.Idempotency.row(r.CompanyID)
	}
	written, err := bounded(ctx, s.waits, row, func(wait time.Duration) ([]int64, error) {
		result, err := s.exec(ctx, insertIntakesSQL, append(slices.Clone(columns), lockTimeout(wait))...)
		if err != nil {
			return nil, err
		}
		n, err := result.RowsAffected()
		return []int64{n}, err
	})
	if err != nil {
		if r.Idempotency != nil {
			err = heldKey(err)
		}
		return false, fmt.Errorf("insert recipients: %w", held(err))
	}
	return written[0] > 0, nil
}

// insertIntakesWithinQuota counts who of the request is new to the company, under the lock
// of its quotas.
func (s *Store) insertIntakesWithinQuota(ctx context.Context, r NewRecipients, columns []any) (bool, error) {
	inserted, err := withQuotas(ctx, s, func(tx *sqlx.Tx) ([]bool, error) {
		if err := lockQuotas(ctx, tx, r.CompanyID); err != nil {
			return nil, err
		}
		ids := make([]uuid.UUID, len(r.Recipients))
		for i := range r.Recipients {
			ids[i] = r.Recipients[i].ID
		}
		known, err := knownPeople(ctx, tx, r.CompanyID, ids)
		if err != nil {
			return nil, err
		}
		wanted := demand{}
		for _, id := range ids {
			if !known[id] {
				known[id] = true // somebody may stand in the request twice
				wanted[QuotaRecipients]++
			}
		}
		b, err := openBudget(ctx, tx, r.CompanyID, wanted, false)
		if err != nil {
			return nil, err
		}
		if err := b.take(wanted); err != nil {
			return nil, err
		}
		result, err := tx.ExecContext(ctx, insertIntakesSQL, append(slices.Clone(columns), lockTimeout(quotaWait))...)
		if err != nil {
			return nil, translate(err)
		}
		n, err := result.RowsAffected()
		return []bool{n > 0}, err
	})
	if err != nil {
		return false, fmt.Errorf("insert recipients: %w", err)
	}
	return inserted[0], nil
}

// intakeColumns are the parameters of insertIntakesSQL.
func intakeColumns(n NewRecipients) ([]any, error) {
	payloads := make([][]byte, len(n.Recipients))
	for i, r := range n.Recipients {
		var err error
		payloads[i], err = json.Marshal(intakePayload{
			ID: r.ID, ExternalID: r.ExternalID, CPFCNPJHash: r.CPFCNPJHash,
			RazaoSocial: r.RazaoSocial, Nome: r.Nome, Email: r.Email, Traceparent: n.Traceparent,
		})
		if err != nil {
			return nil, fmt.Errorf("encode recipient: %w", err)
		}
	}
	var key IdempotencyKey
	if n.Idempotency != nil {
		key = *n.Idempotency
	}
	return []any{
		n.CompanyID, email.QueueRecipients, email.TargetRecipients, n.RequestID, n.CreatedAt,
		uuids(n.Recipients, func(r *NewRecipient) uuid.UUID { return r.OutboxID }),
		uuids(n.Recipients, func(r *NewRecipient) uuid.UUID { return r.ID }),
		texts(n.Recipients, func(r *NewRecipient) string { return r.Email }),
		jsonbs(payloads, func(p *[]byte) []byte { return *p }),
		byteas(n.Recipients, func(r *NewRecipient) []byte { return r.CPFCNPJ }),
		n.Idempotency != nil, key.Route, key.Key, key.BodySHA256, key.Status, key.Answer,
		n.Recipients[0].OutboxID, key.Keep.Milliseconds(),
	}, nil
}
