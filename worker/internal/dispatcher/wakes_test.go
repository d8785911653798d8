package dispatcher_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/dispatcher"
)

// listen configures a dispatcher that receives wake-ups and lists all lanes at this interval.
func (b *bench) listen(t *testing.T, every time.Duration) dispatcher.Params {
	t.Helper()
	listener, err := lane.NewListener(b.URL, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Stop(context.Background()) })
	waittest.Until(t, "listening", listener.Listening)
	p := b.params()
	p.Wakes, p.ListInterval = listener, every
	return p
}

// begun waits until a dispatcher has made its first listing, by sending an email through it.
func (b *bench) begun(t *testing.T, company uuid.UUID) {
	t.Helper()
	b.expectStatus(t, b.Accept(t, company, nil), email.Enqueued)
}

// Rows that no wake-up names are found soon: new ones, and those of lanes that were opened.
func TestDispatch_FindsRowsOfOpenedLanes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.dispatch(t, b.listen(t, time.Hour))
	company := b.Company(t)
	b.begun(t, company)
	operator := audit.Operator{Name: "tester", Reason: "a test"}
	for name, step := range map[string]struct{ closing, opening func() error }{
		"held": {
			func() error {
				_, err := b.Store.HoldLanes(t.Context(), operator, company, lane.Filter{}, true)
				return err
			},
			func() error {
				_, err := b.Store.ReleaseLanes(t.Context(), operator, company, lane.Filter{}, "", false)
				return err
			},
		},
		"suspended": {
			func() error { return b.Store.SuspendCompany(t.Context(), operator, company) },
			func() error { return b.Store.ResumeCompany(t.Context(), operator, company) },
		},
	} {
		if err := step.closing(); err != nil {
			t.Fatal(err)
		}
		id := b.Accept(t, company, nil)
		b.expectStays(t, id, email.Pending)
		if err := step.opening(); err != nil {
			t.Fatal(err)
		}
		t.Log(name)
		b.expectStatus(t, id, email.Enqueued)
	}
}

// A row that is moved to an earlier time is found by the wake-up that follows.
func TestDispatch_FindsMovedRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	id := b.Accept(t, company, nil)
	b.set(t, id, `next_at = now() + interval '2 hours', expires_at = now() + interval '1 day'`)
	b.dispatch(t, b.listen(t, time.Hour))
	b.begun(t, company)
	b.expectStays(t, id, email.Pending)
	b.set(t, id, `next_at = now()`)
	if err := b.Store.WakeLanes(t.Context(), []lane.Lanes{{Company: company}}); err != nil {
		t.Fatal(err)
	}
	b.expectStatus(t, id, email.Enqueued)
}

// A row with an old id and an old time, from a long transaction, is found by the next listing.
func TestDispatch_FindsLateCommits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company, other := b.Company(t), b.Company(t)
	like := b.Accept(t, other, nil)
	b.dispatch(t, b.listen(t, time.Second))
	b.expectStatus(t, like, email.Enqueued)
	tx, err := b.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var id uuid.UUID
	if err := tx.QueryRowContext(t.Context(), `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at, next_at)
		SELECT first_id_at(now() - interval '1 hour'), l.company_id, l.id, e.request_id, e.payload, e.sender, e.html, e.html_sha256, e.checker_version, e.expires_at,
		       now() - interval '1 hour'
		FROM email_outbox e, dispatch_lanes l WHERE e.id = $1 AND l.company_id = $2 AND l.queue = 'email:send' RETURNING id`, like, company).Scan(&id); err != nil {
		t.Fatal(err)
	}
	for range 3 { // newer rows go first
		b.begun(t, company)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	b.expectStatus(t, id, email.Enqueued)
}

// A program that moves an email to an earlier time names its lane in the wake-up.
func TestDispatch_FindsRowsMovedByProgram(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	id := b.Accept(t, company, nil)
	b.set(t, id, `next_at = now() + interval '2 hours', expires_at = now() + interval '1 day'`)
	b.dispatch(t, b.listen(t, time.Hour))
	b.begun(t, company)
	if _, err := b.SQL.ExecContext(t.Context(), `SELECT email_gateway_move($1, now(), now(), interval '1 day')`, id); err != nil {
		t.Fatal(err)
	}
	b.expectStatus(t, id, email.Enqueued)
}

// An email that a worker drops becomes due with the next_at that it had. The wake-up that follows makes the dispatcher read the
// lane from there on.
func TestDispatch_FindsDroppedRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	b.dispatch(t, b.listen(t, time.Hour))
	id := b.Accept(t, company, nil)
	b.expectStatus(t, id, email.Enqueued)
	b.set(t, id, `next_at = now() - interval '1 hour'`)
	if locked, err := b.Store.DropTask(t.Context(), id, 0); err != nil || locked {
		t.Fatalf("locked %t, %v", locked, err)
	}
	b.expectStatus(t, id, email.Enqueued)
}

// stuckListings is an outbox whose listings take until the test ends.
type stuckListings struct {
	dispatcher.Store
	begun chan<- struct{}
}

func (s stuckListings) WaitingLanes(ctx context.Context) (dispatch.WaitingLanes, error) {
	select {
	case s.begun <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return dispatch.WaitingLanes{}, ctx.Err()
}

// A dispatcher takes rows of lanes that wake-ups name, and new rows, while a listing runs, its first one too.
func TestDispatch_DuringListing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	named, older := b.Company(t), b.Accept(t, b.Company(t), nil)
	b.set(t, older, `id = first_id_at(now() - interval '1 hour')`)
	p, begun := b.listen(t, time.Hour), make(chan struct{}, 1)
	p.Store = stuckListings{Store: p.Store, begun: begun}
	b.dispatch(t, p)
	<-begun
	b.expectStatus(t, b.Accept(t, b.Company(t), nil), email.Enqueued)
	if err := b.Store.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := b.Accept(t, named, nil)
	if err := b.Store.WakeLanes(t.Context(), []lane.Lanes{{Company: named}}); err != nil {
		t.Fatal(err)
	}
	b.expectStatus(t, id, email.Enqueued)
	if n := b.count(t, email.Pending); n != 1 {
		t.Errorf("%d emails wait for the listing, want the older one", n)
	}
}
