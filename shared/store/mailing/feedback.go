package mailing

import (
	"context"
	"fmt"

	"email-gateway/shared/store/internal/pg"
)

// foldMailingFeedbackSQL adds the changes in mailing_feedback to the counts of their mailings. It
// finds the distinct mailings by a skip scan of mailing_feedback_pkey, and their rows by primary key.
// The changes of a mailing that another transaction has locked stay until the next round, and do not
// delay other mailings.
const foldMailingFeedbackSQL = `
WITH RECURSIVE waiting AS (
    (SELECT mailing_id FROM mailing_feedback ORDER BY mailing_id LIMIT 1)
    UNION ALL
    SELECT (SELECT f.mailing_id FROM mailing_feedback f WHERE f.mailing_id > w.mailing_id ORDER BY f.mailing_id LIMIT 1)
    FROM waiting w WHERE w.mailing_id IS NOT NULL
), held AS MATERIALIZED (
    SELECT id FROM mailings WHERE id IN (SELECT mailing_id FROM waiting) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
), changes AS (
    DELETE FROM mailing_feedback f USING held WHERE f.mailing_id = held.id
    RETURNING f.mailing_id, f.delivered, f.bounced, f.complained, f.unsubscribed
)
UPDATE mailings m SET delivered = m.delivered + c.delivered, bounced = m.bounced + c.bounced,
    complained = m.complained + c.complained, unsubscribed = m.unsubscribed + c.unsubscribed
FROM (SELECT mailing_id, sum(delivered) AS delivered, sum(bounced) AS bounced, sum(complained) AS complained, sum(unsubscribed) AS unsubscribed
      FROM changes GROUP BY mailing_id) c
WHERE m.id = c.mailing_id`

// FoldMailingFeedback updates the counts of delivered, bounced, complained and unsubscribed of the
// mailings with new feedback, and returns how many mailings it updated. It does not wait for locks.
func (s *Store) FoldMailingFeedback(ctx context.Context) (int, error) {
	done, err := s.db.ExecContext(ctx, foldMailingFeedbackSQL)
	if err != nil {
		return 0, fmt.Errorf("count feedback of mailings: %w", pg.Translate(err))
	}
	n, err := done.RowsAffected()
	return int(n), pg.Wrap("count feedback of mailings", err)
}
