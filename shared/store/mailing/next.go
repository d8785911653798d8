package mailing

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/email"
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

// ExpandableEntry is an entry in the order of its mailing. Only those that are Pending become emails.
type ExpandableEntry struct {
	ID          uuid.UUID      `db:"id"`
	Pending     bool           `db:"pending"`
	Email       string         `db:"email"`
	Token       string         `db:"token"`
	Fields      pq.StringArray `db:"fields"` // those that NextEntries was called with
	Nome        string         `db:"nome"`
	RazaoSocial string         `db:"razao_social"`
	ExternalID  string         `db:"recipient_external_id"`
	CPFCNPJHash string         `db:"cpf_cnpj_hash"`
}

// size is an estimate of the entry's bytes in memory.
func (e *ExpandableEntry) size() int {
	n := len(e.Email) + len(e.Token) + len(e.Nome) + len(e.RazaoSocial) + len(e.ExternalID) + len(e.CPFCNPJHash)
	for _, field := range e.Fields {
		n += len(field)
	}
	return n
}

// nextEntriesSQL reads a range of the primary key of mailing_entries in id order and locks
// nothing. The range contains entries of mailings that were uploaded at the same time. IS TRUE
// keeps the planner from using mailing_entries_address. Of the fields it reads those at the positions of $6, and of each
// $7 characters. Without positions no stored value is read.
const nextEntriesSQL = `
SELECT id, status = 'PENDING' AS pending, email, token,
       CASE WHEN cardinality($6::bigint[]) > 0
            THEN ARRAY(SELECT left(value, $7) FROM unnest(fields) WITH ORDINALITY AS f(value, n) WHERE n = ANY($6) ORDER BY n) ELSE '{}' END AS fields,
       coalesce(nome, '') AS nome, coalesce(razao_social, '') AS razao_social, coalesce(recipient_external_id, '') AS recipient_external_id,
       coalesce(cpf_cnpj_hash, '') AS cpf_cnpj_hash
FROM mailing_entries
WHERE id >= $2 AND id <= $3 AND id > $4 AND (mailing_id = $1) IS TRUE
ORDER BY id LIMIT $5`

const (
	// pageSize is how many entries are read at once: their fields are in memory before their size is known.
	pageSize = 250
	// stepBytes is the size from which on a step reads no more entries.
	stepBytes = 8 << 20
	// subjectValue is how many characters of a value can matter to a subject: one more than a subject may have.
	subjectValue = email.MaxSubject + 1
)

// EntryPage is a part of a mailing's entries.
type EntryPage struct {
	Entries []ExpandableEntry
	Last    bool // the mailing has no entries behind these
}

// NextEntries lists at most limit entries after the job's cursor, and fewer if they are large. Of their fields it reads those
// at the positions, which are ascending and begin at 1, and of each field only as much as a subject can show: the bodies,
// which may need half a megabyte for each entry, are rendered when their emails are sent.
func (s *Store) NextEntries(ctx context.Context, job *Job, positions []int64, limit int) (EntryPage, error) {
	var page EntryPage
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		page = EntryPage{}
		after := job.ExpandedTo // uuid.Nil is less than every id
		if _, err := tx.ExecContext(ctx, pg.AlongKeySQL); err != nil {
			return pg.Translate(err)
		}
		for size := 0; !page.Last && len(page.Entries) < limit && size < stepBytes; {
			var read []ExpandableEntry
			n := min(pageSize, limit-len(page.Entries))
			err := tx.SelectContext(ctx, &read, nextEntriesSQL, job.ID, job.FirstEntry, job.LastEntry, after, n, pq.Array(positions), subjectValue)
			if err != nil {
				return pg.Translate(err)
			}
			page.Last = len(read) < n
			page.Entries = append(page.Entries, read...)
			for i := range read {
				size += read[i].size()
				after = read[i].ID
			}
		}
		return nil
	})
	return page, pg.Wrap("list entries", err)
}
