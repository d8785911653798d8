package webhook_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/prometheus/client_golang/prometheus"
	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"email-gateway/shared/email"
	"email-gateway/shared/keyring"
	format "email-gateway/shared/standardwebhook"
	"email-gateway/shared/store/storetest"
	webhookstore "email-gateway/shared/store/webhook"
	"email-gateway/worker/internal/webhook"
)

// world is a database with its webhooks.
type world struct {
	storetest.Database
	Hooks   *webhookstore.Store
	Sending *webhookstore.SenderStore
	Ring    keyring.Ring
}

func newWorld(t testing.TB) *world {
	t.Helper()
	ring, err := keyring.Parse("test:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	d := storetest.New(t)
	return &world{Database: d, Hooks: webhookstore.New(d.Store.DB()), Sending: webhookstore.NewSenderStore(d.Store.DB()), Ring: ring}
}

// start starts a service. change may be nil. It stops with the test.
func (w *world) start(t testing.TB, change func(*webhook.Params)) *webhook.Service {
	t.Helper()
	s := w.service(change)
	if err := s.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(t.Context()) })
	return s
}

// service makes a service that is not running yet.
func (w *world) service(change func(*webhook.Params)) *webhook.Service {
	p := webhook.Params{
		Log: slog.New(slog.DiscardHandler), Store: w.Sending, Ring: w.Ring, Metrics: webhook.NewMetrics(prometheus.NewRegistry()),
		Sender: webhook.NewSender(webhook.SenderParams{AllowPrivate: true, Timeout: 10 * time.Second}), Schedule: scaled(time.Hour),
		ProbeAfter: time.Hour, DisableAfter: 120 * time.Hour, Concurrency: 64, ConcurrencyPerCompany: 16,
	}
	if change != nil {
		change(&p)
	}
	return webhook.New(p)
}

// scaled is the default schedule with an hour of the given length.
func scaled(hour time.Duration) email.Backoff {
	waits := email.Backoff{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour,
		14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
	for i := range waits {
		waits[i] = max(time.Duration(float64(waits[i])*float64(hour)/float64(time.Hour)), time.Millisecond)
	}
	return waits
}

// receiver is a webhook endpoint. It verifies each request with the specification's own library.
type receiver struct {
	*httptest.Server
	ID      uuid.UUID
	company uuid.UUID

	mu      sync.Mutex
	hook    *standard.Webhook
	answer  func(m message) int // nil = 200
	after   string              // Retry-After of other responses; "" = none
	got     []message           // with a 2xx
	tried   []message
	refused []string
}

type message struct {
	ID, Type, Email, To, Path string
	Seq                       int
	At                        time.Time
}

// endpoint creates an endpoint of the company. Its server starts at once.
func (w *world) endpoint(t *testing.T, company uuid.UUID, types ...string) *receiver {
	t.Helper()
	secret, err := format.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := w.Ring.Seal(company, secret.Text())
	if err != nil {
		t.Fatal(err)
	}
	hook, err := standard.NewWebhook(secret.Text())
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{ID: uuid.Must(uuid.NewV7()), company: company, hook: hook}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	if _, err := w.Hooks.Create(t.Context(), webhookstore.Endpoint{ID: r.ID, CompanyID: company, URL: r.URL, Types: types, Secret: encrypted}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *receiver) serve(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err == nil {
		err = r.hook.Verify(body, request.Header)
	}
	var payload struct {
		Type      string
		Timestamp time.Time
		Data      struct {
			OutboxID, To string
			Seq          int
		}
	}
	if err == nil {
		err = json.Unmarshal(body, &payload)
	}
	m := message{
		ID: request.Header.Get("webhook-id"), Type: payload.Type, Email: payload.Data.OutboxID, To: payload.Data.To, Path: request.URL.Path,
		Seq: payload.Data.Seq, At: time.Now(),
	}
	r.mu.Lock()
	if err != nil || len(body) > 20_000 {
		r.refused = append(r.refused, err.Error())
	}
	r.tried = append(r.tried, m)
	answer := r.answer
	r.mu.Unlock()
	status := http.StatusOK
	if answer != nil {
		status = answer(m)
	}
	if status >= 200 && status < 300 {
		r.mu.Lock()
		r.got = append(r.got, m)
		r.mu.Unlock()
	} else if r.after != "" {
		w.Header().Set("Retry-After", r.after)
	}
	w.WriteHeader(status)
}

func (r *receiver) setAnswer(answer func(m message) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *receiver) messages() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func (r *receiver) attempts() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tried)
}

// check fails the test unless the endpoint got each event of the company, in order per email, and
// every request was verified.
func (r *receiver) check(t *testing.T, w *world, want int) {
	t.Helper()
	for _, text := range r.refused {
		t.Error("not verified:", text)
	}
	seen, last := map[string]bool{}, map[string]int{}
	for _, m := range r.messages() {
		if !seen[m.ID] && m.Seq < last[m.Email] {
			t.Errorf("event %d of email %s after event %d", m.Seq, m.Email, last[m.Email])
		}
		seen[m.ID], last[m.Email] = true, max(last[m.Email], m.Seq)
	}
	if len(seen) != want {
		t.Errorf("%d of %d events", len(seen), want)
	}
}

// path is the timeline of an email that is delivered.
var path = []email.EventType{email.EventReceived, email.EventValidated, email.EventSentAttempt, email.EventSent, email.EventDelivered, email.EventOpened}

// emit writes emails with n events each, the events of one step of all emails in one statement as the
// worker does, and assigns positions.
func (w *world) emit(t *testing.T, company uuid.UUID, emails, events int) []uuid.UUID {
	t.Helper()
	all := w.insert(t, company, emails, events)
	w.assign(t)
	return all
}

// insert is emit without positions: the events are not in the feed yet.
func (w *world) insert(t *testing.T, company uuid.UUID, emails, events int) []uuid.UUID {
	t.Helper()
	ids := make([]string, emails)
	all := make([]uuid.UUID, emails)
	for i := range ids {
		all[i] = uuid.Must(uuid.NewV7())
		ids[i] = all[i].String()
	}
	w.exec(t, `
INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, event_seq, last_event)
SELECT id, $2, 'Maria.Silva@cliente.example', 'Fatura', 'PENDING', 0, 'req-1', now(), now(), 1, 'RECEIVED' FROM unnest($1::uuid[]) AS id`, pq.Array(ids), company)
	for step := range events {
		var previous *string
		if step > 0 {
			text := string(path[step-1])
			previous = &text
		}
		w.exec(t, `
INSERT INTO email_events (email_log_id, seq, previous, type, created_at)
SELECT id, $2, $3, $4, now() FROM unnest($1::uuid[]) AS id`, pq.Array(ids), step+1, previous, string(path[step]))
	}
	return all
}

func (w *world) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := w.SQL.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// assign gives committed rows of the feed their positions, as the dispatcher does.
func (w *world) assign(t *testing.T) {
	t.Helper()
	w.exec(t, `
WITH held AS (SELECT newest FROM event_positions FOR UPDATE),
next AS (SELECT f.id, held.newest + row_number() OVER (ORDER BY f.id) AS position FROM event_feed f, held WHERE f.position IS NULL),
changed AS (UPDATE event_feed f SET position = next.position FROM next WHERE f.id = next.id RETURNING f.position)
UPDATE event_positions SET newest = greatest(newest, (SELECT coalesce(max(position), 0) FROM changed))`)
}

func (w *world) find(t *testing.T, r *receiver) webhookstore.Endpoint {
	t.Helper()
	e, err := w.Hooks.Find(t.Context(), r.company, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (w *world) deliveries(t *testing.T, r *receiver, status webhookstore.DeliveryStatus) []webhookstore.Delivery {
	t.Helper()
	all, err := w.Hooks.Deliveries(t.Context(), r.company, r.ID, webhookstore.DeliveryFilter{Status: status, Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
