package person

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
)

// The first two statements find rows by the first columns of suppressions_pkey. eraseOtherNotesSQL
// scans that index page by page, and locks the rows whose note names the person: notes about other
// addresses.
const (
	eraseSuppressionNotesSQL = `
UPDATE suppressions SET note = NULL, mailing_id = NULL WHERE company_id = $1 AND address = ANY ($2::text[]) AND (note IS NOT NULL OR mailing_id IS NOT NULL)
RETURNING address`
	eraseSuppressionsSQL = `DELETE FROM suppressions WHERE company_id = $1 AND address = ANY ($2::text[]) RETURNING address`
	eraseOtherNotesSQL   = `
WITH seen AS MATERIALIZED (
    SELECT address, reason, note FROM suppressions WHERE company_id = $1 AND (address, reason) > ($2, $3) ORDER BY address, reason LIMIT $5
), changed AS (
    UPDATE suppressions s SET note = regexp_replace(s.note` + scrubSQL + ` FROM seen n
    WHERE n.note ~* $4 AND s.company_id = $1 AND s.address = n.address AND s.reason = n.reason AND s.note ~* $4
    RETURNING s.address
)
SELECT (SELECT count(*) FROM seen) AS seen, (SELECT count(*) FROM changed) AS changed, l.address, l.reason
FROM (SELECT 1) one LEFT JOIN (SELECT address, reason FROM seen ORDER BY address DESC, reason DESC LIMIT 1) l ON true`
)

// EraseSuppressions removes notes and mailings from the suppressions of the person's addresses. With
// forget it deletes the suppressions, so that the company may write to the person again. It returns
// the address of each row.
func (s *Store) EraseSuppressions(ctx context.Context, p Person, forget bool) ([]string, error) {
	statement := eraseSuppressionNotesSQL
	if forget {
		statement = eraseSuppressionsSQL
	}
	return s.erased(ctx, "erase suppressions", statement, p.CompanyID, pq.StringArray(p.Addresses))
}

// EraseOtherNotes removes the person's addresses from the notes of other addresses'
// suppressions, and returns how many notes it changed.
func (s *Store) EraseOtherNotes(ctx context.Context, p Person) (total int, err error) {
	for address, reason := "", ""; ; {
		var page struct {
			Seen, Changed   int
			Address, Reason *string
		}
		err := s.erasing(ctx, func(tx *sqlx.Tx) error {
			return pg.Translate(tx.GetContext(ctx, &page, eraseOtherNotesSQL, p.CompanyID, address, reason, p.pattern(), personBatch))
		})
		if err != nil {
			return total, fmt.Errorf("erase notes: %w", err)
		}
		total += page.Changed
		if page.Seen < personBatch {
			return total, nil
		}
		address, reason = text(page.Address), text(page.Reason)
	}
}
