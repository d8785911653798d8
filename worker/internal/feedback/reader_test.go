package feedback_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/logtest"
	"email-gateway/shared/servertest"
	"email-gateway/shared/sesevent"
	"email-gateway/shared/steps"
	"email-gateway/shared/store"
	feedbackstore "email-gateway/shared/store/feedback"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/dbcheck"
	"email-gateway/worker/internal/feedback"
	"email-gateway/worker/internal/queue/sqsqueue"
)

// timeout is how long a test waits for something that should happen soon.
const timeout = 3 * time.Minute

// bench is a database with emails that were given to SES.
type bench struct {
	storetest.Database
	t       *testing.T
	company uuid.UUID
}

func newBench(t *testing.T) *bench {
	t.Helper()
	d := storetest.New(t)
	return &bench{Database: d, t: t, company: d.Company(t)}
}

// sent is an email of which an attempt was begun.
type sent struct{ company, id, attempt uuid.UUID }

func (b *bench) sent(company uuid.UUID) sent {
	b.t.Helper()
	e := sent{company: company, id: b.Accept(b.t, company, nil), attempt: uuid.New()}
	step := func(kind email.EventType, metadata map[string]any) email.Event {
		return email.Event{Type: kind, At: time.Now().UTC(), Metadata: metadata}
	}
	moved, err := b.Store.Advance(b.t.Context(), outbox.Transition{
		ID: e.id, Guard: outbox.GuardClaim, Token: e.attempt, Status: email.Processing, AddAttempts: 1,
		Events: []email.Event{
			step(email.EventReceived, nil), step(email.EventValidated, nil), step(email.EventSentAttempt, map[string]any{"attemptId": e.attempt}),
		},
		Recipient: &recipient.Recipient{ID: recipient.ID(company, "CUST-1", "", ""), ExternalID: "CUST-1", Nome: "Ana", Email: "ana@example.com"},
	})
	if err != nil || !moved.Applied {
		b.t.Fatalf("claim: %+v, %v", moved, err)
	}
	return e
}

// delivery is SES's event of the delivery.
func (e sent) delivery() string {
	return fmt.Sprintf(`{"eventType":"Delivery","mail":{"timestamp":"2026-11-21T10:00:00.000Z","messageId":"0100-%s",
		"tags":{"outbox_id":[%q],"attempt_id":[%q],"company_id":[%q]}},
		"delivery":{"timestamp":"2026-11-21T10:00:05.123Z","recipients":["ana@example.com"],"smtpResponse":"250 ok"}}`, e.id, e.id, e.attempt, e.company)
}

func (b *bench) timeline(id uuid.UUID) string {
	b.t.Helper()
	events, err := b.Store.Timeline(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	var types []string
	for _, e := range events {
		types = append(types, string(e.Type))
	}
	return strings.Join(types, " ")
}

const delivered = "RECEIVED VALIDATED SENT_ATTEMPT SENT DELIVERED"

// reading is a running Reader.
type reading struct {
	*feedback.Reader
	registry *prometheus.Registry
	log      *logtest.Buffer
}

func (b *bench) read(url string, change func(*feedback.Params)) reading {
	b.t.Helper()
	queue, err := sqsqueue.New(b.t.Context(), url, "us-east-1")
	if err != nil {
		b.t.Fatal(err)
	}
	r := reading{registry: prometheus.NewRegistry(), log: &logtest.Buffer{}}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	p := feedback.Params{Log: log, Queue: queue, Database: dbcheck.New(log, b.Store.Confirm)}
	if change != nil {
		change(&p)
	}
	if p.Recorder == nil {
		p.Recorder = b.recorder(log, b.Store, r.registry)
	}
	r.Reader = feedback.NewReader(p)
	if err := r.Start(b.t.Context(), nil); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := r.Stop(ctx); err != nil {
			b.t.Errorf("stop: %v", err)
		}
	})
	return r
}

func (b *bench) recorder(log *slog.Logger, s *store.Store, registry *prometheus.Registry) *sesevent.Recorder {
	b.t.Helper()
	recorder, err := sesevent.NewRecorder(log, s, steps.New(registry), registry)
	if err != nil {
		b.t.Fatal(err)
	}
	return recorder
}

// counted is a value of ses_events_total.
func (r reading) counted(t *testing.T, kind string, result sesevent.Result) int {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if l := m.GetLabel(); family.GetName() == "ses_events_total" && l[0].GetValue() == kind && l[1].GetValue() == string(result) {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

// Through a topic, with SNS's envelope and without it.
func TestReader_Envelopes(t *testing.T) {
	t.Parallel()
	for _, raw := range []bool{false, true} {
		t.Run(fmt.Sprintf("raw=%t", raw), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			q := servertest.NewQueue(t, servertest.SharedSQS(t), nil)
			publish := q.Subscribe(raw)
			r := b.read(q.URL, nil)
			e := b.sent(b.company)
			publish("Successfully validated SNS topic for Amazon SES event publishing.")
			publish(e.delivery())
			waittest.Until(t, "recorded", func() bool { return b.timeline(e.id) == delivered })
			waittest.Until(t, "deleted", func() bool { return q.Len() == 0 })
			if n := r.counted(t, "other", sesevent.Ignored); n != 1 || r.Ping(t.Context()) != nil {
				t.Errorf("%d messages ignored, %v", n, r.Ping(t.Context()))
			}
			if strings.Contains(r.log.String(), "@example.com") {
				t.Error("an address is in the log")
			}
		})
	}
}

// The same event by /v1/ses/events and by the queue counts once: a notification by its id, a bare event
// by what it says.
func TestReader_BesideSNS(t *testing.T) {
	t.Parallel()
	for _, raw := range []bool{false, true} {
		b := newBench(t)
		q := servertest.NewQueue(t, servertest.SharedSQS(t), nil)
		e := b.sent(b.company)
		const notification = "7c1b0c9c-5a3e-5f0e-9d5c-51a9e3b1f2aa"
		f, err := sesevent.Parse(notification, e.delivery()) // as the api does
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Store.RecordFeedback(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		body := e.delivery()
		if !raw {
			body = fmt.Sprintf(`{"Type":"Notification","MessageId":%q,"TopicArn":"arn:aws:sns:us-east-1:123456789012:a","Message":%q}`, notification, e.delivery())
		}
		q.Send(body)
		q.Send(body)
		r := b.read(q.URL, nil)
		waittest.Until(t, "deleted", func() bool { return q.Len() == 0 })
		if got := b.timeline(e.id); got != delivered {
			t.Errorf("raw=%t: %s", raw, got)
		}
		if n := r.counted(t, "Delivery", sesevent.Repeated); !raw && n != 2 || raw && n != 1 {
			t.Errorf("raw=%t: %d repeated", raw, n)
		}
	}
}

// A message that cannot be read is left to the redrive policy and delays no other.
func TestReader_Poison(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	server := servertest.SharedSQS(t)
	dead := servertest.NewQueue(t, server, nil)
	q := servertest.NewQueue(t, server, map[string]string{
		"VisibilityTimeout": "1", "RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"2"}`, dead.ARN),
	})
	poison := []string{
		`no JSON`, `{"a":1}`, `{"Type":"SubscriptionConfirmation","MessageId":"m","Message":"confirm"}`, `{"eventType":"Delivery"} {}`,
		`{"Type":"Notification","MessageId":"<b>","Message":"{}"}`,
		`{"Type":"Notification","MessageId":"m","Message":"{\"detail-type\":\"Email Bounced\",\"detail\":{}}"}`, // of EventBridge
	}
	for _, body := range poison {
		q.Send(body)
	}
	e := b.sent(b.company)
	q.Send(e.delivery())
	r := b.read(q.URL, nil)
	waittest.Until(t, "recorded", func() bool { return b.timeline(e.id) == delivered })
	waittest.Until(t, "moved to the dead-letter queue", func() bool { return dead.Len() == len(poison) && q.Len() == 0 })
	if n := r.counted(t, "other", sesevent.Poison); n != 2*len(poison) {
		t.Errorf("%d counted, want each message twice", n)
	}
}

// panicking is a Recorder for which one event causes a panic.
type panicking struct {
	feedback.Recorder
	id uuid.UUID
}

func (p panicking) Record(ctx context.Context, f feedbackstore.Feedback, start time.Time) (sesevent.Result, error) {
	if f.OutboxID == p.id {
		panic("impossible event of ana@example.com")
	}
	return p.Recorder.Record(ctx, f, start)
}

// A message that causes a panic is left to the redrive policy, too, and neither ends the process nor delays others of
// its company.
func TestReader_Panic(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	server := servertest.SharedSQS(t)
	dead := servertest.NewQueue(t, server, nil)
	q := servertest.NewQueue(t, server, map[string]string{
		"VisibilityTimeout": "1", "RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"2"}`, dead.ARN),
	})
	bad, good := b.sent(b.company), b.sent(b.company)
	q.Send(bad.delivery())
	registry := prometheus.NewRegistry()
	r := b.read(q.URL, func(p *feedback.Params) { p.Recorder = panicking{b.recorder(p.Log, b.Store, registry), bad.id} })
	r.registry = registry
	waittest.Until(t, "moved to the dead-letter queue", func() bool { return dead.Len() == 1 && q.Len() == 0 })
	q.Send(good.delivery())
	waittest.Until(t, "recorded", func() bool { return b.timeline(good.id) == delivered })
	if n := r.counted(t, "Delivery", sesevent.Poison); n != 2 {
		t.Errorf("%d counted, want the message twice", n)
	}
	if text := r.log.String(); !strings.Contains(text, "panic: impossible event of a***@e***.com") || !strings.Contains(text, "reader_test.go") {
		t.Errorf("the log must contain the panic and its stack:\n%s", text)
	}
}

func TestReader_TwoOnOneQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	q := servertest.NewQueue(t, servertest.SharedSQS(t), nil)
	const n = 150
	var all []sent
	for range n {
		all = append(all, b.sent(b.company))
		q.Send(all[len(all)-1].delivery())
	}
	one, two := b.read(q.URL, nil), b.read(q.URL, nil)
	waittest.Until(t, "deleted", func() bool { return q.Len() == 0 })
	for _, e := range all {
		if got := b.timeline(e.id); got != delivered {
			t.Fatal(got)
		}
	}
	if a, b := one.counted(t, "Delivery", sesevent.Applied), two.counted(t, "Delivery", sesevent.Applied); a+b != n {
		t.Errorf("%d and %d applied of %d", a, b, n)
	}
}

// distant is a queue that answers a call only while another one is in progress, as if the answers took long.
type distant struct {
	feedback.Queue
	pair chan struct{}
}

func (d distant) Receive(ctx context.Context, wait time.Duration) ([]feedback.Message, error) {
	select {
	case d.pair <- struct{}{}:
	case <-d.pair:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return d.Queue.Receive(ctx, wait)
}

// A call returns at most ten messages, so one call at a time would limit the rate by the distance to the queue.
func TestReader_ReceivesConcurrently(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	q := servertest.NewQueue(t, servertest.SharedSQS(t), nil)
	e := b.sent(b.company)
	q.Send(e.delivery())
	b.read(q.URL, func(p *feedback.Params) { p.Queue = distant{p.Queue, make(chan struct{})} })
	waittest.Until(t, "recorded", func() bool { return b.timeline(e.id) == delivered })
}

// stuck is a queue whose first call fails when it is released. The others are answered.
type stuck struct {
	feedback.Queue
	release chan struct{}
	calls   *atomic.Int64
}

func (s stuck) Receive(ctx context.Context, wait time.Duration) ([]feedback.Message, error) {
	if s.calls.Add(1) == 1 {
		<-s.release
		return nil, errors.New("connection reset")
	}
	return s.Queue.Receive(ctx, wait)
}

// A call that fails long after an outage, because its connection was cut, is no new outage.
func TestReader_OldCallFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	q := servertest.NewQueue(t, servertest.SharedSQS(t), nil)
	e := b.sent(b.company)
	q.Send(e.delivery())
	release, calls := make(chan struct{}), new(atomic.Int64)
	r := b.read(q.URL, func(p *feedback.Params) { p.Queue = stuck{p.Queue, release, calls} })
	waittest.Until(t, "recorded", func() bool { return b.timeline(e.id) == delivered })
	n := calls.Load()
	close(release)
	waittest.Until(t, "received again", func() bool { return calls.Load() > n })
	if r.log.Count("does not answer") != 0 {
		t.Errorf("an outage is logged: %s", r.log)
	}
}

// backlog is a queue whose first calls return full batches. The calls after these wait until it is released.
type backlog struct {
	feedback.Queue
	full    *atomic.Int64
	release chan struct{}
}

func (q backlog) Receive(ctx context.Context, wait time.Duration) ([]feedback.Message, error) {
	if q.full.Add(-1) >= 0 {
		return make([]feedback.Message, feedback.MaxMessages), nil
	}
	select {
	case <-q.release:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return q.Queue.Receive(ctx, wait)
}

// undeletable is a queue whose policy does not allow deletions.
type undeletable struct{ feedback.Queue }

func (undeletable) Delete(context.Context, []feedback.Message) error {
	return errors.New("AccessDenied")
}

// A queue from which nothing can be deleted delivers each event again and again: it does not count as connected, although it
// answers other calls meanwhile.
func TestReader_CannotDelete(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	q := servertest.NewQueue(t, servertest.SharedSQS(t), nil)
	e := b.sent(b.company)
	q.Send(e.delivery())
	r := b.read(q.URL, func(p *feedback.Params) { p.Queue = undeletable{p.Queue} })
	waittest.Until(t, "reported", func() bool {
		err := r.Ping(t.Context())
		return err != nil && strings.Contains(err.Error(), "AccessDenied")
	})
	if n := r.log.Count("call=delete"); n != 1 {
		t.Errorf("logged %d times: %s", n, r.log)
	}
}

// After a failed call, messages may be hidden that were received and not recorded.
func TestReader_HiddenMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	q := servertest.NewQueue(t, servertest.SharedSQS(t), nil)
	release, calls := make(chan struct{}), new(atomic.Int64)
	close(release) // the first call fails at once
	r := b.read(q.URL, func(p *feedback.Params) { p.Queue = stuck{p.Queue, release, calls} })
	for range 3 {
		e := b.sent(b.company)
		q.Send(e.delivery())
		waittest.Until(t, "recorded", func() bool { return b.timeline(e.id) == delivered })
	}
	if at := r.Drained(); !at.IsZero() {
		t.Errorf("drained at %s", at)
	}
}

// A full batch says that more messages may wait.
func TestReader_Drained(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	q := servertest.NewQueue(t, servertest.SharedSQS(t), nil)
	release, full := make(chan struct{}), new(atomic.Int64)
	full.Store(8)
	r := b.read(q.URL, func(p *feedback.Params) { p.Queue = backlog{p.Queue, full, release} })
	waittest.Until(t, "the backlog is read", func() bool { return r.counted(t, "other", sesevent.Poison) == 8*feedback.MaxMessages })
	if at := r.Drained(); !at.IsZero() {
		t.Errorf("drained at %s", at)
	}
	q.Send(b.sent(b.company).delivery())
	close(release)
	waittest.Until(t, "drained", func() bool { return !r.Drained().IsZero() })
}

// An event of an email of another installation, whose workers read the same queue by mistake, is left to these for a while.
func TestReader_OtherInstallation(t *testing.T) {
	t.Parallel()
	ours, others := newBench(t), newBench(t)
	q := servertest.NewQueue(t, servertest.SharedSQS(t), map[string]string{"VisibilityTimeout": "2"})
	e := others.sent(others.company)
	q.Send(e.delivery())
	wrong := ours.read(q.URL, nil)
	waittest.Until(t, "received", func() bool { return wrong.counted(t, "Delivery", sesevent.Unmatched) > 0 })
	if err := wrong.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	right := others.read(q.URL, nil)
	waittest.Until(t, "recorded", func() bool { return others.timeline(e.id) == delivered })
	waittest.Until(t, "deleted", func() bool { return q.Len() == 0 })

	for range 2 {
		q.Send(ours.sent(ours.company).delivery())
	}
	waittest.Until(t, "deleted", func() bool { return q.Len() == 0 })
	if n := right.counted(t, "Delivery", sesevent.Unmatched); n != 10 {
		t.Errorf("%d receives of two events, want five of each", n)
	}
	if n := right.log.Count("of no email of this installation"); n != 1 {
		t.Errorf("logged %d times: %s", n, right.log)
	}
}

// A queue that is away is reported, and read again when it is back.
func TestReader_QueueAway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	server := servertest.Start(t, "sqs")
	q := servertest.NamedQueue(t, server.URL, "events", nil)
	r := b.read(q.URL, nil)
	first := b.sent(b.company)
	q.Send(first.delivery())
	waittest.Until(t, "recorded", func() bool { return b.timeline(first.id) == delivered })
	server.Kill()
	waittest.Until(t, "reported", func() bool { return r.Ping(t.Context()) != nil })
	server.Start()
	q = servertest.NamedQueue(t, server.URL, "events", nil) // its queues were in memory
	second := b.sent(b.company)
	q.Send(second.delivery())
	waittest.Until(t, "recorded after the outage", func() bool { return b.timeline(second.id) == delivered })
	if err := r.Ping(t.Context()); err != nil {
		t.Errorf("after the outage: %v", err)
	}
	if n := r.log.Count("does not answer\" call=receive"); n != 1 {
		t.Errorf("the outage is logged %d times", n)
	}
}

// Without Postgres, messages stay in the queue: a receive would count for the redrive policy.
func TestReader_DatabaseAway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	proxy := storetest.NewProxy(t, b.Database)
	cut, err := store.Open(t.Context(), proxy.URL, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cut.Close)
	dead := servertest.NewQueue(t, servertest.SharedSQS(t), nil)
	q := servertest.NewQueue(t, servertest.SharedSQS(t), map[string]string{
		"VisibilityTimeout": "5", "RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"3"}`, dead.ARN),
	})
	confirmed := make(chan error, 1000)
	r := b.read(q.URL, func(p *feedback.Params) {
		p.Recorder = b.recorder(p.Log, cut, prometheus.NewRegistry())
		p.Database = dbcheck.New(p.Log, func(ctx context.Context) error {
			err := cut.Confirm(ctx)
			confirmed <- err
			return err
		})
	})
	proxy.Stop()
	proxy.CutAll()
	e := b.sent(b.company)
	q.Send(e.delivery())
	deadline := time.After(timeout)
	for failed := 0; failed < 4; { // more than the redrive policy allows receives
		select {
		case err := <-confirmed:
			if err != nil {
				failed++
			}
		case <-deadline:
			t.Fatalf("timeout: Postgres is not asked: %s", r.log)
		}
	}
	proxy.Restart()
	waittest.Until(t, "recorded", func() bool { return b.timeline(e.id) == delivered })
	if dead.Len() != 0 {
		t.Error("the event was given up")
	}
	waittest.Until(t, "deleted", func() bool { return q.Len() == 0 })
	_ = r
}

// A program holds the rows of one company. Its events wait; those of another company do not.
func TestReader_LockedRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := b.Company(t)
	q := servertest.NewQueue(t, servertest.SharedSQS(t), map[string]string{"VisibilityTimeout": "1"})
	tx, err := b.SQL.BeginTx(t.Context(), &sql.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	var held, free []sent
	for range 150 { // more than all batches hold
		held = append(held, b.sent(b.company))
	}
	if _, err := tx.ExecContext(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM email_outbox WHERE company_id = $1 FOR UPDATE`, b.company); err != nil {
		t.Fatal(err)
	}
	for _, e := range held {
		q.Send(e.delivery())
	}
	r := b.read(q.URL, nil)
	waittest.Until(t, "the locked company is known", func() bool { return r.counted(t, "Delivery", sesevent.Postponed) > 0 })
	for range 20 {
		free = append(free, b.sent(other))
		q.Send(free[len(free)-1].delivery())
	}
	for _, e := range free {
		waittest.Until(t, "an event of another company", func() bool { return b.timeline(e.id) == delivered })
	}
	for _, e := range held {
		if got := b.timeline(e.id); got == delivered {
			t.Fatal("the rows were not locked")
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "all recorded", func() bool { return q.Len() == 0 })
	for _, e := range held {
		if got := b.timeline(e.id); got != delivered {
			t.Fatal(got)
		}
	}
}
