package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

// ErrRefused: Postgres will not have this row, now or later. Trying again is of no use.
var ErrRefused = errors.New("refused by the database")

// UpsertRecipients writes accepted recipients down, each in the state that its
// newest intake gives it, and tells for each outbox id, in the order given, what
// became of it: nil (it is written, or newer news of the person are), ErrNotFound
// (no such intake), ErrRefused, or another error of the database, after which it may
// be tried again. Doing it twice leaves what doing it once leaves.
//
// One bad row makes Postgres refuse the whole statement, so a refused batch is halved
// until the bad row stands alone.
func (s *Store) UpsertRecipients(ctx context.Context, outboxIDs []uuid.UUID) []error {
	sorted := slices.SortedFunc(slices.Values(outboxIDs), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	became := make(map[uuid.UUID]error, len(outboxIDs))
	s.upsertHalves(ctx, slices.Compact(sorted), became)
	results := make([]error, len(outboxIDs))
	for i, id := range outboxIDs {
		results[i] = became[id]
	}
	return results
}

// upsertHalves goes from old to new, so that what is told of a person first is
// written first.
func (s *Store) upsertHalves(ctx context.Context, ids []uuid.UUID, became map[uuid.UUID]error) {
	if len(ids) == 0 {
		return
	}
	found, err := repeat(func() ([]uuid.UUID, error) { return s.upsertIntakes(ctx, ids) })
	if errors.Is(err, ErrRefused) && len(ids) > 1 {
		s.upsertHalves(ctx, ids[:len(ids)/2], became)
		s.upsertHalves(ctx, ids[len(ids)/2:], became)
		return
	}
	for _, id := range ids {
		if became[id] = err; err == nil {
			became[id] = ErrNotFound
		}
	}
	for _, id := range found {
		became[id] = nil
	}
}

// intakePersonSQL is the recipient that an intake's outbox row o is about; NULL in a
// row that says so in no form we know.
const intakePersonSQL = `CASE WHEN o.payload ->> 'id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN (o.payload ->> 'id')::uuid END`

// upsertIntakesSQL locks the outbox rows (by primary key, in id order), the
// recipients (by primary key, in id order) and the intakes (by primary key). It
// waits for a dispatcher that is still writing down that it published the rows.
//
// Of several intakes of one person each field is the newest that is given. An intake
// that is not newer than what wrote the row last changes nothing: it comes late, or
// twice. What an intake does not tell stays as it was, as with an email's recipient,
// but a number does not outlive the hash it belongs to.
const upsertIntakesSQL = `
WITH held AS MATERIALIZED (
    SELECT o.id, o.company_id, o.status, o.payload, o.cpf_cnpj_enc, ` + intakePersonSQL + ` AS recipient_id
    FROM (SELECT * FROM unnest($1::uuid[]) AS t(id) LIMIT $2) t
    JOIN email_outbox o ON o.id = t.id AND o.target = 'recipients.upsert'
    ORDER BY o.id FOR UPDATE OF o
), news AS (
    SELECT h.id, h.company_id, h.recipient_id, h.cpf_cnpj_enc, h.payload ->> 'externalId' AS external_id,
           h.payload ->> 'cpfCnpjHash' AS cpf_cnpj_hash, h.payload ->> 'razaoSocial' AS razao_social,
           h.payload ->> 'nome' AS nome, h.payload ->> 'email' AS email
    FROM held h LEFT JOIN recipients r ON r.id = h.recipient_id
    WHERE h.status <> 'FAILED' AND (r.intake_id IS NULL OR r.intake_id < h.id)
), people AS (
    SELECT recipient_id, company_id,
           (array_agg(id ORDER BY id DESC))[1] AS intake_id,
           (array_agg(external_id ORDER BY id DESC) FILTER (WHERE external_id IS NOT NULL))[1] AS external_id,
           (array_agg(cpf_cnpj_hash ORDER BY id DESC) FILTER (WHERE cpf_cnpj_hash IS NOT NULL))[1] AS cpf_cnpj_hash,
           (array_agg(cpf_cnpj_enc ORDER BY id DESC) FILTER (WHERE cpf_cnpj_enc IS NOT NULL))[1] AS cpf_cnpj_enc,
           (array_agg(cpf_cnpj_hash ORDER BY id DESC) FILTER (WHERE cpf_cnpj_enc IS NOT NULL))[1] AS hash_of_enc,
           (array_agg(razao_social ORDER BY id DESC) FILTER (WHERE razao_social IS NOT NULL))[1] AS razao_social,
           (array_agg(nome ORDER BY id DESC) FILTER (WHERE nome IS NOT NULL))[1] AS nome,
           (array_agg(email ORDER BY id DESC))[1] AS email
    FROM news GROUP BY recipient_id, company_id
), written AS (
    INSERT INTO recipients (id, company_id, intake_id, external_id, cpf_cnpj_hash, cpf_cnpj_enc, razao_social, nome, email)
    SELECT recipient_id, company_id, intake_id, external_id, cpf_cnpj_hash,
           CASE WHEN hash_of_enc = cpf_cnpj_hash THEN cpf_cnpj_enc END, razao_social, nome, email
    FROM people ORDER BY recipient_id
    ON CONFLICT (id) DO UPDATE SET
        intake_id = excluded.intake_id,
        external_id = coalesce(excluded.external_id, recipients.external_id),
        cpf_cnpj_hash = coalesce(excluded.cpf_cnpj_hash, recipients.cpf_cnpj_hash),
        cpf_cnpj_enc = CASE WHEN excluded.cpf_cnpj_hash <> recipients.cpf_cnpj_hash THEN excluded.cpf_cnpj_enc
                            ELSE coalesce(excluded.cpf_cnpj_enc, recipients.cpf_cnpj_enc) END,
        razao_social = coalesce(excluded.razao_social, recipients.razao_social),
        nome = coalesce(excluded.nome, recipients.nome),
        email = excluded.email,
        deleted_at = NULL,
        updated_at = now()
    WHERE recipients.company_id = excluded.company_id
      AND (recipients.intake_id IS NULL OR recipients.intake_id < excluded.intake_id)
), arrived AS (
    DELETE FROM recipient_intakes i USING held h
    WHERE i.recipient_id = h.recipient_id AND i.outbox_id = h.id
), emptied AS (
    UPDATE email_outbox o SET cpf_cnpj_enc = NULL
    FROM held h WHERE o.id = h.id AND h.status <> 'FAILED' AND h.cpf_cnpj_enc IS NOT NULL
)
SELECT id FROM held`

func (s *Store) upsertIntakes(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	var found []uuid.UUID
	err := write(func(args []any) error {
		found = nil
		return s.db.SelectContext(ctx, &found, upsertIntakesSQL, args...)
	}, uuidArray(ids), len(ids))
	if err != nil {
		return nil, fmt.Errorf("upsert recipients: %w", refusal(err))
	}
	return found, nil
}

// refusal marks an error that a row is to blame for. A statement that the database
// does not understand (class 42) is our own mistake, or a migration that is missing.
func refusal(err error) error {
	var refused *pq.Error
	if isRefusal(err) && errors.As(err, &refused) && refused.Code.Class() != "42" && refused.Code != pqerror.FeatureNotSupported {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

// buryIntakeSQL locks the outbox row and deletes the intake, both by primary key. It
// does nothing to an intake that is buried or written already. The number stays
// encrypted on the outbox row, for a second chance.
const buryIntakeSQL = `
WITH held AS MATERIALIZED (
    SELECT o.*, ` + intakePersonSQL + ` AS recipient_id
    FROM email_outbox o WHERE o.id = $1 AND o.target = 'recipients.upsert' FOR UPDATE
), failed AS (
    UPDATE email_outbox o SET status = 'FAILED', processed_at = now(), attempts = $4, last_error = $2 || coalesce(': ' || nullif($3, ''), '')
    FROM held h
    WHERE o.id = h.id AND h.status <> 'FAILED'
      AND NOT EXISTS (SELECT FROM recipients r WHERE r.id = h.recipient_id AND r.intake_id >= h.id)
    RETURNING o.id, o.company_id, o.payload, h.recipient_id
), gone AS (
    DELETE FROM recipient_intakes i USING failed f WHERE i.recipient_id = f.recipient_id AND i.outbox_id = f.id
)
INSERT INTO dead_letters (id, company_id, outbox_id, target, email, reason, attempts, last_error, payload)
SELECT gen_random_uuid(), company_id, id, 'recipients.upsert', payload ->> 'email', $2, $4, nullif($3, ''), payload FROM failed`

// BuryIntake gives an intake up, in one commit: its outbox row becomes FAILED, and a
// dead letter says why. reason is a code, detail is for people and holds nothing that
// a log may not. Done twice, it leaves one dead letter.
func (s *Store) BuryIntake(ctx context.Context, outboxID uuid.UUID, reason, detail string, attempts int) error {
	_, err := repeat(func() ([]struct{}, error) {
		_, err := s.exec(ctx, buryIntakeSQL, outboxID, reason, withoutNUL(detail), attempts)
		return nil, err
	})
	if err != nil {
		return fmt.Errorf("bury recipient: %w", err)
	}
	return nil
}
