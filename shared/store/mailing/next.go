package mailing

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
)

// countLaneSQL counts along email_outbox_lane_claim up to $2 rows. It locks nothing.
const countLaneSQL = `
SELECT count(*) FROM (
    SELECT FROM email_outbox WHERE lane_id = $1 AND status IN ('PENDING', 'RETRY_SCHEDULED') LIMIT $2
) waiting`

// CountLane returns how many rows of a lane wait to be sent, limit at most.
func (s *Store) CountLane(ctx context.Context, lane int64, limit int) (int, error) {
	var n int
	if err := s.db.GetContext(ctx, &n, countLaneSQL, lane, limit); err != nil {
		return 0, fmt.Errorf("count lane: %w", pg.Translate(err))
	}
	return n, nil
}

// ExpandableEntry is an entry in the order of its mailing. Only those that are Pending
// become emails.
type ExpandableEntry struct {
	ID          uuid.UUID      `db:"id"`
	Pending     bool           `db:"pending"`
	Email       string         `db:"email"`
	Token       string         `db:"token"`
	Fields      pq.StringArray `db:"fields"`
	Nome        string         `db:"nome"`
	RazaoSocial string         `db:"razao_social"`
	ExternalID  string         `db:"recipient_external_id"`
	CPFCNPJHash string         `db:"cpf_cnpj_hash"`
}

// nextEntriesSQL reads a range of the primary key of mailing_entries in id order and locks
// nothing. The range contains entries of mailings that were uploaded at the same time. IS TRUE
// keeps the planner from using mailing_entries_address.
const nextEntriesSQL = `
SELECT id, status = 'PENDING' AS pending, email, token, fields, coalesce(nome, '') AS nome, coalesce(razao_social, '') AS razao_social,
       coalesce(recipient_external_id, '') AS recipient_external_id, coalesce(cpf_cnpj_hash, '') AS cpf_cnpj_hash
FROM mailing_entries
WHERE id >= $2 AND id <= $3 AND id <> $4 AND (mailing_id = $1) IS TRUE
ORDER BY id LIMIT $5`

// NextEntries lists at most limit entries after the job's cursor.
func (s *Store) NextEntries(ctx context.Context, job *Job, limit int) ([]ExpandableEntry, error) {
	from := job.ExpandedTo
	if from == uuid.Nil {
		from = job.FirstEntry
	}
	var entries []ExpandableEntry
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, pg.AlongKeySQL); err != nil {
			return pg.Translate(err)
		}
		return pg.Translate(tx.SelectContext(ctx, &entries, nextEntriesSQL, job.ID, from, job.LastEntry, job.ExpandedTo, limit))
	})
	if err != nil {
		return nil, fmt.Errorf("list entries: %w", err)
	}
	return entries, nil
}
