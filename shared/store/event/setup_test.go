package event_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/storetest"
)

// open returns a Store on a pool of its own, whose connections have the name.
func open(tb testing.TB, d storetest.Database, name string) *event.Store {
	tb.Helper()
	db, err := pg.Open(tb.Context(), d.URL+"&application_name="+name, pg.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(db.Close)
	return event.New(db)
}

// execer is a transaction, or a pool.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// newEmail inserts the log of an email.
func newEmail(tb testing.TB, x execer, company uuid.UUID) uuid.UUID {
	tb.Helper()
	id := uuid.Must(uuid.NewV7())
	_, err := x.ExecContext(tb.Context(), `
		INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, event_seq, last_event)
		VALUES ($1, $2, 'ana@example.com', 'Fatura', 'PENDING', 0, 'r', now() + interval '1 day', now(), 0, NULL)`, id, company)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

// cycle is a path that an email may follow for ever.
var cycle = []email.EventType{email.EventReceived, email.EventValidated, email.EventSentAttempt, email.EventReleased}

// appendEvents adds n events to the timeline of the email, whose log it locks, as every statement of
// the gateway does.
func appendEvents(ctx context.Context, x execer, id uuid.UUID, n int) error {
	var seq int
	if err := x.QueryRowContext(ctx, `SELECT event_seq FROM email_logs WHERE outbox_id = $1 FOR UPDATE`, id).Scan(&seq); err != nil {
		return err
	}
	_, err := x.ExecContext(ctx, `
		WITH new AS (
			SELECT $2::int + n AS seq, ($3::text[])[1 + ($2::int + n - 1) % 4] AS type, CASE WHEN $2::int + n > 1 THEN ($3::text[])[1 + ($2::int + n - 2) % 4] END AS previous
			FROM generate_series(1, $4::int) n
		), logged AS (
			UPDATE email_logs SET event_seq = $2::int + $4::int, last_event = (SELECT type FROM new ORDER BY seq DESC LIMIT 1) WHERE outbox_id = $1
		)
		INSERT INTO email_events (email_log_id, seq, previous, type, created_at) SELECT $1, seq, previous, type, now() FROM new`,
		id, seq, `{`+string(cycle[0])+`,`+string(cycle[1])+`,`+string(cycle[2])+`,`+string(cycle[3])+`}`, n)
	return err
}

// assignAll assigns positions until no committed event is without one.
func assignAll(tb testing.TB, s *event.Store) {
	tb.Helper()
	for {
		assigned, err := s.AssignPositions(tb.Context(), 1000)
		if err != nil {
			tb.Fatal(err)
		}
		if assigned == 0 {
			return
		}
	}
}

// readAll reads the feed behind the cursor to its end.
func readAll(tb testing.TB, s *event.Store, company uuid.UUID, after event.Cursor, limit int, types ...email.EventType) ([]event.Event, event.Cursor) {
	tb.Helper()
	var all []event.Event
	for {
		page, err := s.Read(tb.Context(), company, after, event.OfTypes(types), limit)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, page.Events...)
		if after = page.Next; !page.More {
			return all, after
		}
	}
}

// ids returns the ids of the events.
func ids(events []event.Event) []string {
	all := make([]string, len(events))
	for i, e := range events {
		all[i] = e.ID()
	}
	return all
}
