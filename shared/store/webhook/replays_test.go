package webhook_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/webhook"
)

// A replay of a range begins and ends near the events of the range, in a feed of any size, and may be created
// twice by the same request.
func TestCreateReplay_Range(t *testing.T) {
	t.Parallel()
	d, s, _ := newStore(t)
	company := d.Company(t)
	id := newEndpoint(t, s, company)
	// One row per minute for 27 days.
	d.Run(t, `
INSERT INTO event_feed (company_id, position, email_ids, first_seqs, last_seqs, created_at)
SELECT $1, n, ARRAY[gen_random_uuid()], '{1}', '{1}', now() - (39000 - n) * interval '1 min' FROM generate_series(1, 39000) n`, company)
	d.Run(t, `UPDATE event_positions SET newest = 39000`)
	since, until := time.Now().Add(-10*24*time.Hour), time.Now().Add(-9*24*time.Hour)
	r := webhook.Replay{ID: uuid.Must(uuid.NewV7()), EndpointID: id, CompanyID: company, Since: &since, Until: &until}
	for range 2 {
		if _, err := s.CreateReplay(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.FindReplay(t.Context(), company, id, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * 60
	if from, to := int64(39000-10*day), int64(39000-9*day); got.Position > from || got.Position < from-120 || got.LastPosition < to || got.LastPosition > to+day+120 {
		t.Errorf("from %d to %d, want around %d to %d and a day", got.Position, got.LastPosition, from, to)
	}
	if e := find(t, s, company, id); e.Failures != 0 || storetest.Ask[bool](t, d, `SELECT due_at <= now() FROM webhook_endpoints WHERE id = $1`, id) != true {
		t.Error("the endpoint is not due")
	}
	for range webhook.MaxReplays - 1 {
		r.ID = uuid.Must(uuid.NewV7())
		if _, err := s.CreateReplay(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	r.ID = uuid.Must(uuid.NewV7())
	if _, err := s.CreateReplay(t.Context(), r); !errors.Is(err, webhook.ErrTooManyReplays) {
		t.Errorf("one more: %v", err)
	}
	if _, err := s.Disable(t.Context(), company, id); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateReplay(t.Context(), r); !errors.Is(err, webhook.ErrDisabled) {
		t.Errorf("of a disabled endpoint: %v", err)
	}
}

// A request about an endpoint whose row is locked fails after the limit of waits, and holds no connection for
// longer.
func TestCreateReplay_LockedEndpoint(t *testing.T) {
	t.Parallel()
	d, s, _ := newStore(t)
	company := d.Company(t)
	id := newEndpoint(t, s, company)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0; SELECT FROM webhook_endpoints FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateReplay(t.Context(), webhook.Replay{ID: uuid.Must(uuid.NewV7()), EndpointID: id, CompanyID: company}); err == nil {
		t.Error("no error while the endpoint was locked")
	}
}

// A replay of failed deliveries makes them due in steps; of one email only the first, and one that fails again meanwhile
// does not belong to it.
func TestReplayFailed(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	company := d.Company(t)
	id := newEndpoint(t, s, company)
	l := take(t, sender, id)
	one, other := uuid.New(), uuid.New()
	var all []webhook.Attempted
	for i, email := range []uuid.UUID{one, one, one, other, other} {
		a := failed(email, int64(i+1))
		a.Status = webhook.Failed
		all = append(all, a)
	}
	if _, err := sender.Record(t.Context(), l, webhook.Result{New: all}, disableAfter); err != nil {
		t.Fatal(err)
	}
	r := webhook.Replay{ID: uuid.Must(uuid.NewV7()), EndpointID: id, CompanyID: company}
	if _, err := s.CreateReplay(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	r, err := s.FindReplay(t.Context(), company, id, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{4, 1} {
		if n, err := sender.ReplayFailed(t.Context(), l, r, 4); err != nil || n != want {
			t.Fatalf("%d, %v, want %d", n, err, want)
		}
	}
	due, err := sender.Load(t.Context(), l, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var positions []int64
	for _, x := range due.Due {
		positions = append(positions, x.Position)
	}
	slices.Sort(positions)
	if !slices.Equal(positions, []int64{1, 4}) || due.Open != 5 || due.Replay != nil {
		t.Errorf("due are %v, %d open, replay %v", positions, due.Open, due.Replay)
	}
	if r, err = s.FindReplay(t.Context(), company, id, r.ID); err != nil || r.Status != webhook.ReplayCompleted || r.Done != 5 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A failed delivery that is replayed waits for a later one of its email that is open. If that one is retried by hand, the earlier
// one is due first: they must not wait for each other.
func TestRetryDelivery_AfterAReplay(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	company := d.Company(t)
	id := newEndpoint(t, s, company)
	l := take(t, sender, id)
	email := uuid.New()
	first, second := failed(email, 5), failed(email, 8)
	first.Status = webhook.Failed
	if _, err := sender.Record(t.Context(), l, webhook.Result{New: []webhook.Attempted{first, second}}, disableAfter); err != nil {
		t.Fatal(err)
	}
	r := webhook.Replay{ID: uuid.Must(uuid.NewV7()), EndpointID: id, CompanyID: company}
	if _, err := s.CreateReplay(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	r, err := s.FindReplay(t.Context(), company, id, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := sender.ReplayFailed(t.Context(), l, r, 10); err != nil || n != 1 {
		t.Fatalf("%d, %v", n, err)
	}
	later := storetest.Ask[uuid.UUID](t, d, `SELECT id FROM webhook_deliveries WHERE position = 8`)
	if _, err := s.RetryDelivery(t.Context(), company, id, later); err != nil {
		t.Fatal(err)
	}
	due, err := sender.Load(t.Context(), l, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if len(due.Due) != 1 || due.Due[0].Position != 5 || due.Open != 2 {
		t.Errorf("due: %+v, %d open", due.Due, due.Open)
	}
}
