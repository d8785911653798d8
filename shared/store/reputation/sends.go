package reputation

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/sql"
)

const (
	// kept is how long sends and feedback are kept: the longest window, and an hour for clock differences
	// and open transactions.
	kept = 25 * time.Hour
	// feedRows is how many rows of event_feed one statement reads: about 20 ms.
	feedRows = 20_000
)

// feedSQL reads the company's rows of the feed backwards along event_feed_position, from below $3 to the
// last one that was counted, and sums the sent emails by minute. It locks nothing.
const feedSQL = `
WITH part AS MATERIALIZED (
    SELECT position, created_at, sent FROM event_feed
    WHERE company_id = $1 AND position > $2 AND position < $3 ORDER BY position DESC LIMIT $4
)
SELECT date_trunc('minute', created_at) AS minute, coalesce(sum(sent) FILTER (WHERE created_at > $5), 0) AS sent, count(*) AS rows,
       min(position) AS first, max(position) AS last, max(created_at) AS newest
FROM part GROUP BY 1`

// minuteOfFeed is a row of feedSQL.
type minuteOfFeed struct {
	Minute time.Time `db:"minute"`
	Sent   int64     `db:"sent"`
	Rows   int       `db:"rows"`
	First  int64     `db:"first"`
	Last   int64     `db:"last"`
	Newest time.Time `db:"newest"`
}

// sends are the emails that a company sent in a minute.
type sends struct {
	minute time.Time
	n      int64
}

// addSendsParameters are the parameters of add_sends.sql: the company, and its minutes.
var addSendsParameters = pg.Parameters[uuid.UUID, sends]{
	Scalars: []pg.Scalar[uuid.UUID]{pg.One("company_id", "uuid", func(company uuid.UUID) any { return company })},
	Columns: []pg.Column[sends]{
		pg.Each("minute", "timestamptz", pg.Times, func(s *sends) time.Time { return s.minute }),
		pg.Each("sent", "bigint", pg.BigInts, func(s *sends) int64 { return s.n }),
	},
}

// forgetSendsSQL deletes along the primary key.
const forgetSendsSQL = `DELETE FROM reputation_sends WHERE company_id = $1 AND minute < now() - $2 * interval '1 ms'`

// countSends adds new rows of the feed to reputation_sends, and returns the position up to which they
// are counted. counted is the previous position. It does not count emails that were sent before from or
// longer ago than kept, and stops reading the feed when all rows of a part are older.
func countSends(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, counted int64, from, now time.Time) (int64, error) {
	oldest := now.Add(-kept)
	if from.After(oldest) {
		oldest = from
	}
	sent := make(map[time.Time]int64)
	newest, below := counted, int64(1<<62)
	for {
		var part []minuteOfFeed
		if err := tx.SelectContext(ctx, &part, feedSQL, company, counted, below, feedRows, oldest); err != nil {
			return 0, pg.Translate(err)
		}
		rows, last := 0, time.Time{}
		for _, m := range part {
			sent[m.Minute.UTC()] += m.Sent
			rows += m.Rows
			newest, below = max(newest, m.Last), min(below, m.First)
			if m.Newest.After(last) {
				last = m.Newest
			}
		}
		if rows < feedRows || last.Before(oldest) {
			break
		}
	}
	var minutes []sends
	for minute, n := range sent {
		if n > 0 {
			minutes = append(minutes, sends{minute, n})
		}
	}
	if len(minutes) > 0 {
		if _, err := tx.ExecContext(ctx, sql.AddSends, addSendsParameters.Arguments(company, minutes)...); err != nil {
			return 0, pg.Translate(err)
		}
	}
	_, err := tx.ExecContext(ctx, forgetSendsSQL, company, kept.Milliseconds())
	return newest, pg.Translate(err)
}
