package maintenance_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/email/emailtest"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/maintenance"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/queuetest"
	"email-gateway/worker/internal/queue/redistest"
)

// rescue runs two rescuers, as in two dispatchers.
func rescue(t *testing.T, d storetest.Database, q maintenance.Tasks, window time.Duration) (registries []*prometheus.Registry) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	for range 2 {
		registry := prometheus.NewRegistry()
		outcomes := maintenance.Outcomes{
			Advancer: d.Store.NewAdvancer(), MaxAttempts: email.MaxAttempts, Backoff: emailtest.Backoff(), Window: window, Processes: d.Store, Wake: d.Store.WakeNamed,
		}
		run(t, maintenance.NewRescuer(maintenance.RescuerParams{
			Log: log, Store: d.Store, Outcomes: outcomes, Queue: q, Registry: registry, Actions: maintenance.NewActions(registry), After: time.Minute,
		}))
		run(t, maintenance.NewOutcomeResolver(maintenance.ResolverParams{
			Log: log, Store: d.Store, Outcomes: outcomes, Registry: registry,
		}))
		registries = append(registries, registry)
	}
	return registries
}

func newQueue(t *testing.T) *asynqueue.Publisher {
	t.Helper()
	url, prefix := redistest.Shared(t)
	conn, err := asynqueue.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	publisher := asynqueue.NewPublisher(conn.WithPrefix(prefix))
	t.Cleanup(func() { _ = publisher.Close() })
	return publisher
}

// listen returns a condition that holds once the dispatchers have been woken.
func listen(t *testing.T, d storetest.Database) (woken func() bool) {
	t.Helper()
	listener, err := lane.NewListener(d.URL, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Stop(context.Background()) })
	woken = func() bool {
		select {
		case <-listener.Woken():
			return true
		default:
			return false
		}
	}
	waittest.Until(t, "listening", listener.Listening)
	return woken
}

// claim returns a claimed email whose lease ends at now() plus or minus lease.
func claim(t *testing.T, d storetest.Database, company uuid.UUID, lease string, change func(*outbox.NewEmail)) uuid.UUID {
	t.Helper()
	id := d.Accept(t, company, change)
	moved, err := d.Store.Advance(t.Context(), outbox.Transition{
		ID: id, Guard: outbox.GuardClaim, Token: uuid.New(), Status: email.Processing, AddAttempts: 1,
		Events: []email.Event{{Type: email.EventReceived, At: time.Now()}, {Type: email.EventValidated, At: time.Now()}, {Type: email.EventSentAttempt, At: time.Now()}},
	})
	if err != nil || !moved.Applied {
		t.Fatalf("claim: %+v, %v", moved, err)
	}
	set(t, d, id, `lease_until = now() `+lease)
	return id
}

// An email whose worker is gone is resolved once, according to its delivery policy.
func TestRescuer_AbandonedClaims(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	claimed := func(lease string, change func(*outbox.NewEmail)) uuid.UUID {
		return claim(t, d, company, lease, change)
	}
	atMostOnce := func(e *outbox.NewEmail) { e.Delivery = email.AtMostOnce }
	alive := claimed("+ interval '1 min'", nil)
	again := claimed("- interval '6 s'", nil)
	never := claimed("- interval '6 s'", atMostOnce)
	last := claimed("- interval '6 s'", nil)
	set(t, d, last, `attempts = 6, throttles = 1`)
	throttled := claimed("- interval '6 s'", nil)
	set(t, d, throttled, `attempts = 6, throttles = 4`)

	metrics := rescue(t, d, newQueue(t), 0)
	for name, tt := range map[string]struct {
		id        uuid.UUID
		status    email.Status
		events    []email.EventType
		duplicate bool
		letters   int
	}{
		"at least once": {again, email.RetryScheduled, []email.EventType{email.EventOutcomeUnknown, email.EventRetryScheduled}, true, 0},
		"throttled":     {throttled, email.RetryScheduled, []email.EventType{email.EventOutcomeUnknown, email.EventRetryScheduled}, true, 0},
		"at most once":  {never, email.Failed, []email.EventType{email.EventOutcomeUnknown, email.EventFailed}, false, 1},
		"out of tries":  {last, email.Failed, []email.EventType{email.EventOutcomeUnknown, email.EventFailed}, false, 1},
	} {
		waittest.Until(t, name, func() bool { return status(t, d, tt.id) == tt.status })
		timeline, err := d.Store.Timeline(t.Context(), tt.id)
		if err != nil {
			t.Fatal(err)
		}
		var after []email.EventType
		for _, e := range timeline[min(3, len(timeline)):] {
			after = append(after, e.Type)
		}
		if diff := cmp.Diff(tt.events, after); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		shown, err := d.Store.FindEmail(t.Context(), company, tt.id)
		if err != nil || shown.PossibleDuplicate != tt.duplicate || !shown.OutcomeUnknown {
			t.Errorf("%s: %+v, %v", name, shown, err)
		}
		var letters int
		if err := d.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM dead_letters WHERE outbox_id = $1`, tt.id).Scan(&letters); err != nil || letters != tt.letters {
			t.Errorf("%s: %d dead letters, %v", name, letters, err)
		}
	}
	waittest.Until(t, "they are counted, each once", func() bool {
		return counted(t, metrics, "outbox_rescued_total", "lease_ended") == 4
	})
	if got := status(t, d, alive); got != email.Processing {
		t.Errorf("one whose lease has not ended: %s", got)
	}
}

// An email whose task the queue has lost, or a worker has dropped, returns to the dispatcher; one
// whose task is queued waits, however long.
func TestRescuer_LostTasks(t *testing.T) {
	t.Parallel()
	d, q := storetest.New(t), newQueue(t)
	company := d.Company(t)
	enqueued := func(since string, publish bool) uuid.UUID {
		id := d.Accept(t, company, nil)
		set(t, d, id, `status = 'ENQUEUED', enqueued_at = now() - interval '`+since+`'`)
		if publish {
			if _, err := q.Publish(t.Context(), queue.Task{ID: id.String(), Queue: email.QueueNormal, Payload: []byte(`{}`)}); err != nil {
				t.Fatal(err)
			}
		}
		return id
	}
	lost, fresh, waiting, unpublished, dropped := enqueued("61 s", false), enqueued("1 s", false), enqueued("1 h", true), enqueued("62 s", false), enqueued("63 s", false)
	if err := d.Store.NoteDroppedTask(t.Context(), dropped); err != nil {
		t.Fatal(err)
	}
	if _, err := d.SQL.ExecContext(t.Context(), `INSERT INTO dispatch_batches (slot, taken_at) SELECT gen_random_uuid(), enqueued_at FROM email_outbox WHERE id = $1`, unpublished); err != nil {
		t.Fatal(err)
	}
	woken := listen(t, d)
	metrics := rescue(t, d, q, 0)
	waittest.Until(t, "the lost ones are back", func() bool {
		return status(t, d, lost) == email.Pending && status(t, d, unpublished) == email.Pending && status(t, d, dropped) == email.Pending
	})
	waittest.Until(t, "dispatchers are notified", woken)
	for _, reason := range []string{"lost", "unpublished", "dropped"} {
		waittest.Until(t, reason+": counted, once", func() bool { return counted(t, metrics, "outbox_rescued_total", reason) == 1 })
	}
	for name, id := range map[string]uuid.UUID{"fresh": fresh, "waiting": waiting} {
		if got := status(t, d, id); got != email.Enqueued {
			t.Errorf("the %s one: %s", name, got)
		}
	}
}

// counted is the sum of a counter's series with the label over all processes.
func counted(t *testing.T, from []*prometheus.Registry, name, label string) (n int) {
	t.Helper()
	for _, registry := range from {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					if family.GetName() == name && l.GetValue() == label {
						n += int(m.GetCounter().GetValue())
					}
				}
			}
		}
	}
	return n
}

// A list entry that no worker can run is removed, whatever its row says, and so is the leftover of
// a task whose row waits for it; both are counted.
func TestRescuer_RepairsQueues(t *testing.T) {
	t.Parallel()
	url, prefix := redistest.Shared(t)
	conn, err := asynqueue.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	conn = conn.WithPrefix(prefix)
	d, q, r := storetest.New(t), asynqueue.NewPublisher(conn), conn.Client()
	t.Cleanup(func() { _, _ = q.Close(), r.Close() })
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	base := "asynq:{" + prefix + email.QueueNormal + "}:"
	if err := r.LPush(t.Context(), base+"active", uuid.NewString(), uuid.NewString()).Err(); err != nil {
		t.Fatal(err)
	}
	set(t, d, id, `status = 'ENQUEUED', enqueued_at = now() - interval '2 min'`)
	if err := r.HSet(t.Context(), base+"t:"+id.String(), "state", "pending").Err(); err != nil {
		t.Fatal(err)
	}
	metrics := rescue(t, d, q, 0)
	waittest.Until(t, "the room is free", func() bool {
		n, err := queuetest.Depth(t.Context(), q, email.QueueNormal)
		return err == nil && n == 0
	})
	waittest.Until(t, "the row is back", func() bool { return status(t, d, id) == email.Pending })
	waittest.Until(t, "it is counted as a leftover", func() bool { return counted(t, metrics, "outbox_rescued_total", "leftover") == 1 })
	for action, want := range map[string]int{asynqueue.StrayRemoved: 2, asynqueue.TaskEvicted: 1} {
		waittest.Until(t, action, func() bool { return counted(t, metrics, "maintenance_actions_total", action) == want })
	}
}

// counting counts the queue calls for single tasks.
type counting struct {
	*asynqueue.Publisher
	asked, listed atomic.Int64
}

func (c *counting) Evict(ctx context.Context, name, id string) (queue.Found, error) {
	c.asked.Add(1)
	return c.Publisher.Evict(ctx, name, id)
}

func (c *counting) Ready(ctx context.Context, queue string) ([]string, error) {
	c.listed.Add(1)
	return c.Publisher.Ready(ctx, queue)
}

// While workers are down the queue's list is read once for all tasks on it.
func TestRescuer_ListsQueueOnce(t *testing.T) {
	t.Parallel()
	d, q := storetest.New(t), &counting{Publisher: newQueue(t)}
	company := d.Company(t)
	for range 20 {
		id := d.Accept(t, company, nil)
		set(t, d, id, `status = 'ENQUEUED', enqueued_at = now() - interval '2 min'`)
		if _, err := q.Publish(t.Context(), queue.Task{ID: id.String(), Queue: email.QueueNormal, Payload: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	lost := d.Accept(t, company, nil)
	set(t, d, lost, `status = 'ENQUEUED', enqueued_at = now() - interval '2 min'`)
	rescue(t, d, q, 0)
	waittest.Until(t, "the lost one is back", func() bool { return status(t, d, lost) == email.Pending })
	if asked, listed := q.asked.Load(), q.listed.Load(); asked > 2 || listed > 4 {
		t.Errorf("looked up single tasks %d times, listed %d times", asked, listed)
	}
}

// searches counts the searches for emails that have been ENQUEUED for long.
type searches struct {
	maintenance.RescueStore
	n int
}

func (s *searches) LongEnqueued(ctx context.Context, age time.Duration, after uuid.UUID, limit int, since time.Time) (dispatch.Enqueued, error) {
	s.n++
	return s.RescueStore.LongEnqueued(ctx, age, after, limit, since)
}

// Emails that were enqueued just now are read once, and not in each round: none of them can be lost yet.
func TestRescuer_FreshTasks(t *testing.T) {
	t.Parallel()
	d, q := storetest.New(t), newQueue(t)
	company := d.Company(t)
	for name, tt := range map[string]struct {
		enqueued string
		want     int
	}{"fresh": {"1 s", 1}, "on the queue for long": {"3 h", 3}} {
		id := d.Accept(t, company, nil)
		set(t, d, id, `status = 'ENQUEUED', enqueued_at = now() - interval '`+tt.enqueued+`'`)
		if _, err := q.Publish(t.Context(), queue.Task{ID: id.String(), Queue: email.QueueNormal, Payload: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
		s, registry := &searches{RescueStore: d.Store}, prometheus.NewRegistry()
		r := maintenance.NewRescuer(maintenance.RescuerParams{
			Log: slog.New(slog.DiscardHandler), Store: s, Queue: q, Registry: registry, Actions: maintenance.NewActions(registry), After: time.Hour,
		})
		for range 3 {
			if err := r.RescueTasks(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s.n != tt.want {
			t.Errorf("%s: read %d times in three rounds", name, s.n)
		}
		set(t, d, id, `status = 'SENT', enqueued_at = NULL, processed_at = now()`)
	}
}

// busy has workers that take these emails' tasks, and send them, just before the queue is listed.
type busy struct {
	counting
	send func()
}

func (b *busy) Ready(ctx context.Context, queue string) ([]string, error) {
	b.send()
	return b.counting.Ready(ctx, queue)
}

// Tasks that workers take while the rescuer looks are not looked up one by one: each lookup scans the queue's list.
func TestRescuer_BusyQueue(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	taken := make([]uuid.UUID, 20)
	for i := range taken {
		taken[i] = d.Accept(t, company, nil)
		set(t, d, taken[i], `status = 'ENQUEUED', enqueued_at = now() - interval '2 min'`)
	}
	lost := d.Accept(t, company, nil)
	set(t, d, lost, `status = 'ENQUEUED', enqueued_at = now() - interval '2 min'`)
	q := &busy{counting: counting{Publisher: newQueue(t)}, send: sync.OnceFunc(func() {
		for _, id := range taken {
			set(t, d, id, `status = 'SENT', processed_at = now()`)
		}
	})}
	rescue(t, d, q, 0)
	waittest.Until(t, "the lost one is back", func() bool { return status(t, d, lost) == email.Pending })
	if asked := q.asked.Load(); asked > 2 {
		t.Errorf("looked up single tasks %d times, want once per rescuer at most", asked)
	}
}

// silent is a cluster in which one queue's node does not answer.
type silent struct{ *asynqueue.Publisher }

func (s silent) Ready(ctx context.Context, queue string) ([]string, error) {
	if queue == email.QueueHigh {
		return nil, errors.New("no answer")
	}
	return s.Publisher.Ready(ctx, queue)
}

// The emails of a queue that does not answer stay unchanged, and those on other queues are rescued
// without delay.
func TestRescuer_UnresponsiveQueue(t *testing.T) {
	t.Parallel()
	d, q := storetest.New(t), silent{newQueue(t)}
	company := d.Company(t)
	unknown := d.Accept(t, company, func(e *outbox.NewEmail) { e.Priority = 1 })
	lost := d.Accept(t, company, nil)
	for _, id := range []uuid.UUID{unknown, lost} {
		set(t, d, id, `status = 'ENQUEUED', enqueued_at = now() - interval '2 min'`)
	}
	rescue(t, d, q, 0)
	waittest.Until(t, "the lost one is back", func() bool { return status(t, d, lost) == email.Pending })
	if got := status(t, d, unknown); got != email.Enqueued {
		t.Errorf("an email of the silent queue is %s", got)
	}
}

// More than two batches.
func TestRescuer_ManyLostTasks(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	d.Accept(t, d.Company(t), nil)
	if _, err := d.SQL.ExecContext(t.Context(), `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at)
		SELECT gen_random_uuid(), company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at
		FROM email_outbox, generate_series(1, 1200)`); err != nil {
		t.Fatal(err)
	}
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() - interval '2 min'`); err != nil {
		t.Fatal(err)
	}
	rescue(t, d, newQueue(t), 0)
	waittest.Until(t, "all are back", func() bool {
		var left int
		if err := d.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM email_outbox WHERE status <> 'PENDING'`).Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
}
