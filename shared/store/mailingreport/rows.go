package mailingreport

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/mailing"
)

// RowDuplicate is the status of a row whose address an earlier row has. Other rows without an entry
// have mailing.EntryInvalid; rows with an entry have its status.
const RowDuplicate = "DUPLICATE"

// Row is a row of a mailing's file with its outcome.
type Row struct {
	Line           int            `db:"line_no"`
	LastLine       int            `db:"last_line"`   // of a row of several lines without an entry; otherwise 0
	ID             uuid.NullUUID  `db:"id"`          // of its entry, and of the email made from it; null without an entry
	Email          string         `db:"email"`       // "" without an entry
	Column         string         `db:"column_name"` // the invalid column of a row without an entry; "" = the whole row
	Status         string         `db:"status"`
	Code           string         `db:"code"`   // why it was not sent, or why its last attempt failed; "" = unknown
	Reason         string         `db:"reason"` // human-readable; "" = only the code is known
	OutcomeUnknown bool           `db:"outcome_unknown"`
	Attempts       int            `db:"attempts"`
	LastAttempt    *time.Time     `db:"last_attempt"`
	SESMessageID   *string        `db:"external_id"`
	ExternalID     *string        `db:"recipient_external_id"`
	EmptyFields    pq.StringArray `db:"empty_fields"` // the columns that a template uses and it leaves empty
	// The delivery state of its email; see emails.Email.
	Delivery       *email.DeliveryState `db:"delivery"`
	DeliveryAt     *time.Time           `db:"delivery_at"`
	DeliveryReason *string              `db:"delivery_reason"`
}

// RowCursor is a position in a list of rows. The zero value is the beginning.
type RowCursor struct {
	Line  int       // the last row
	Entry uuid.UUID // the last row that is an entry
}

// RowFilter chooses rows of a mailing, in the order of the file.
type RowFilter struct {
	Status string // "" = all
	After  RowCursor
	Limit  int
}

// entryRowsSQL reads the range of the primary key that holds the mailing's entries, as
// entriesSQL does, and the logs of those that became emails by primary key. It locks
// nothing. LIMIT 1 keeps the planner from reading all logs for a join, and IS TRUE keeps it
// from using an index of the company's logs.
const entryRowsSQL = `
SELECT e.id, e.line_no, e.email, e.status, e.outcome_unknown, e.attempts, e.last_attempt, e.external_id, e.recipient_external_id, e.empty_fields,
       CASE e.status WHEN 'INVALID' THEN upper(e.invalid_reason) WHEN 'SENT' THEN '' ELSE coalesce(l.error_code, '') END AS code,
       coalesce(e.validation_details, CASE WHEN e.status <> 'SENT' THEN l.error_reason END, '') AS reason, l.delivery, l.delivery_at, l.delivery_reason
FROM (SELECT id, line_no, email, status, outcome_unknown, attempts, last_attempt, external_id, recipient_external_id, empty_fields,
             invalid_reason, validation_details
      FROM mailing_entries
      WHERE id >= $1 AND id > $2 AND id <= $3 AND (mailing_id = $4) IS TRUE AND ($5 = '' OR status = $5)
      ORDER BY id LIMIT $6) e
LEFT JOIN LATERAL (SELECT l.error_code, l.error_reason, ` + emails.DeliveryColumnsSQL + ` FROM email_logs l
                   WHERE l.outbox_id = e.id AND (l.company_id = $7) IS TRUE AND e.status NOT IN ('PENDING', 'INVALID') LIMIT 1) l ON true
ORDER BY e.id`

// rejectRowsSQL reads a mailing's rejected lines by primary key, in its order, and locks nothing.
const rejectRowsSQL = `
SELECT line_no, coalesce(last_line, 0) AS last_line, coalesce(column_name, '') AS column_name, code, CASE code WHEN '` + mailing.CodeDuplicate + `' THEN 'DUPLICATE' ELSE 'INVALID' END AS status
FROM mailing_rejects
WHERE mailing_id = $1 AND line_no > $2 AND ($3 = '' OR (code = '` + mailing.CodeDuplicate + `') = ($3 = 'DUPLICATE')) ORDER BY line_no LIMIT $4`

// RowPage is a part of a list of rows.
type RowPage struct {
	Rows []Row
	End  RowCursor // of the last row
	More bool      // there may be others
}

// MailingRows returns a page of a mailing's rows, or pg.ErrNotFound if the company has no such
// mailing.
func (s *Store) MailingRows(ctx context.Context, company, id uuid.UUID, f RowFilter) (RowPage, error) {
	m, err := s.mailings.FindMailing(ctx, company, id)
	if err != nil {
		return RowPage{}, err
	}
	limit := max(f.Limit, 1)
	var rows, rejects []Row
	if f.Status != RowDuplicate {
		err := s.db.SelectContext(ctx, &rows, entryRowsSQL, m.FirstEntry.UUID, f.After.Entry, m.LastEntry.UUID, id, f.Status, limit, company)
		if err != nil {
			return RowPage{}, fmt.Errorf("list rows: %w", pg.Translate(err))
		}
	}
	if f.Status == "" || f.Status == mailing.EntryInvalid || f.Status == RowDuplicate {
		if err := s.db.SelectContext(ctx, &rejects, rejectRowsSQL, id, f.After.Line, f.Status, limit); err != nil {
			return RowPage{}, fmt.Errorf("list rejected rows: %w", pg.Translate(err))
		}
		rows = append(rows, rejects...)
		slices.SortFunc(rows, func(a, b Row) int { return a.Line - b.Line })
	}
	page := RowPage{Rows: rows[:min(limit, len(rows))], End: f.After, More: len(rows) >= limit}
	for _, row := range page.Rows {
		page.End.Line = row.Line
		if row.ID.Valid {
			page.End.Entry = row.ID.UUID
		}
	}
	return page, nil
}
