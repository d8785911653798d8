package outbox

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/sql"
)

// takeKeysParameters are the parameters of take_keys.sql.
var takeKeysParameters = pg.Parameters[uuid.UUID, NewEmail]{
	Scalars: []pg.Scalar[uuid.UUID]{pg.One("company_id", "uuid", func(company uuid.UUID) any { return company })},
	Columns: []pg.Column[NewEmail]{
		pg.Each("id", "uuid", pg.UUIDs, func(e *NewEmail) uuid.UUID { return e.ID }),
		pg.Each("aggregate_type", "text", pg.Texts, func(e *NewEmail) string { return e.aggregate().Type }),
		pg.Each("aggregate_id", "text", pg.Texts, func(e *NewEmail) string { return e.aggregate().ID }),
		pg.Each("event_type", "text", pg.Texts, func(e *NewEmail) string { return e.aggregate().EventType }),
	},
}

// takeAggregates finds the emails whose aggregate and event type have an email already, and takes the keys of the
// others. If an earlier email of the batch has the same aggregate and event type, followers maps the email's index to
// that of the earlier one, and both have the same result.
func (t *batchTry) takeAggregates(ctx context.Context, tx *sqlx.Tx) (followers map[int]int, err error) {
	followers = map[int]int{}
	leaders, of := map[Aggregate]int{}, map[uuid.UUID]int{}
	var emails []NewEmail
	for i := range t.Emails {
		e := &t.Emails[i]
		over, known := t.over[i]
		if known {
			t.outcome.Results[i].Over = over
		}
		if e.Aggregate == nil {
			continue
		}
		if leader, found := leaders[*e.Aggregate]; found {
			followers[i] = leader
			continue
		}
		leaders[*e.Aggregate] = i
		if !known {
			of[e.ID] = i
			emails = append(emails, *e)
		}
	}
	if len(emails) == 0 {
		return followers, nil
	}
	var taken []struct{ Newcomer, Holder uuid.UUID }
	if err := tx.SelectContext(ctx, &taken, sql.TakeKeys, takeKeysParameters.Arguments(t.CompanyID, emails)...); err != nil {
		return nil, fmt.Errorf("take keys of aggregates: %w", pg.Translate(err))
	}
	held := map[uuid.UUID][]int{} // indexes of emails, by the email that holds their key
	for _, key := range taken {
		if key.Holder != key.Newcomer {
			held[key.Holder] = append(held[key.Holder], of[key.Newcomer])
		}
	}
	return followers, t.describeEarlier(ctx, tx, held)
}

// earlierEmailsSQL reads email_outbox and email_logs by primary key and locks nothing.
const earlierEmailsSQL = `
SELECT k.id, coalesce(o.request_id, l.request_id) AS request_id, coalesce(o.status, l.status) AS status, coalesce(o.created_at, l.created_at) AS created_at
FROM unnest($2::uuid[]) AS k(id)
LEFT JOIN email_outbox o ON o.id = k.id AND o.company_id = $1
LEFT JOIN email_logs l ON l.outbox_id = k.id AND l.company_id = $1
WHERE coalesce(o.id, l.outbox_id) IS NOT NULL`

// describeEarlier sets Earlier in the results of the emails whose keys other emails hold.
func (t *batchTry) describeEarlier(ctx context.Context, tx *sqlx.Tx, held map[uuid.UUID][]int) error {
	if len(held) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, 0, len(held))
	for id, all := range held {
		ids = append(ids, id)
		for _, i := range all {
			t.outcome.Results[i].Earlier = &EarlierEmail{ID: id}
		}
	}
	var found []EarlierEmail
	if err := tx.SelectContext(ctx, &found, earlierEmailsSQL, t.CompanyID, pg.UUIDArray(ids)); err != nil {
		return fmt.Errorf("find earlier emails: %w", pg.Translate(err))
	}
	for _, e := range found {
		if e.Status == email.Cancelled { // since its key was read: it makes room for another email
			return ErrAggregateBusy
		}
		e.CreatedAt = e.CreatedAt.UTC()
		for _, i := range held[e.ID] {
			t.outcome.Results[i].Earlier = &e
		}
	}
	return nil
}

// fresh returns the emails to insert and their indexes. It leaves out an email with the aggregate and event type of an
// earlier email of the batch.
func (t *batchTry) fresh() (emails []NewEmail, indexes []int) {
	seen := map[Aggregate]bool{}
	for i := range t.Emails {
		e := &t.Emails[i]
		if e.Aggregate != nil {
			if seen[*e.Aggregate] {
				continue
			}
			seen[*e.Aggregate] = true
		}
		if t.outcome.Results[i].inserted() {
			emails, indexes = append(emails, *e), append(indexes, i)
		}
	}
	return emails, indexes
}

// takeQuotas checks the quotas under the lock of the company's quotas, if the company is close to one. In a partial
// batch it marks each email that would exceed a quota. If the key of such an email's aggregate was taken, the
// transaction begins again without the email.
func (t *batchTry) takeQuotas(ctx context.Context, tx *sqlx.Tx) error {
	emails, indexes := t.fresh()
	if !t.nearQuota || len(emails) == 0 {
		return nil
	}
	if err := quota.Lock(ctx, tx, t.CompanyID); err != nil {
		return err
	}
	wanted, err := demandOf(ctx, tx, t.CompanyID, emails)
	if err != nil {
		return err
	}
	b, err := openBudget(ctx, tx, t.CompanyID, emails, wanted)
	if err != nil {
		return err
	}
	if !t.Partial {
		return b.left.Take(totalDemand(emails, wanted))
	}
	again := false
	for n, i := range indexes {
		if over := b.take(&emails[n], wanted[n]); over != nil {
			t.over[i], t.outcome.Results[i].Over = over, over
			again = again || emails[n].Aggregate != nil
		}
	}
	if again {
		return errOverQuota
	}
	return nil
}

// insert writes the emails, one statement per piece.
func (t *batchTry) insert(ctx context.Context, tx *sqlx.Tx) error {
	emails, _ := t.fresh()
	if len(emails) > 0 {
		t.outcome.Inserted = emails[0].ID
	}
	crashpoint.At(crashpoint.BatchClaimed)
	for piece := range pg.Pieces(emails, NewEmail.size) {
		inserted, err := insertEmailsIn(ctx, tx, piece, quota.LockWait)
		switch {
		case err != nil:
			return err
		case len(inserted) < len(piece):
			return lane.ErrNone
		}
		if err := file.Link(ctx, tx, t.CompanyID, Attached(piece)...); err != nil {
			return err
		}
		crashpoint.At(crashpoint.BatchPiece)
	}
	crashpoint.At(crashpoint.BatchWritten)
	return nil
}
