package neighbours

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/shared/service"
)

const (
	// requestTimeout is the timeout of the quiet company's requests, and of the wait for its last emails
	// at SES.
	requestTimeout = 15 * time.Second
	// firstTimeout is the timeout of the first email to SES.
	firstTimeout = time.Minute
	// quietName is the company that makes only a few requests per second.
	quietName = "Vizinha"
	// shortest is the duration in which the intervals below yield 100 requests of each kind;
	// shorter measurements use shorter intervals.
	shortest = 20 * time.Second
)

// probe is one kind of request of the quiet company.
type probe struct {
	kind  string
	every time.Duration
	// fixed keeps the interval in short measurements too: more emails per second would exceed the
	// company's share of the send rate during another one's flood.
	fixed bool
	// request returns the n-th one.
	request func(q *quiet, n int) request
	uploads bool // measured only for resources with uploads
}

// probes are the requests of the quiet company. With 100 requests or more the 99th percentile is
// not the slowest one.
func probes() []probe {
	return []probe{
		{kind: "send", every: 100 * time.Millisecond, fixed: true, request: (*quiet).send},
		{kind: "send 100 KB", every: 200 * time.Millisecond, request: (*quiet).sendLarge},
		{kind: "read email", every: 100 * time.Millisecond, request: (*quiet).readEmail},
		{kind: "list", every: 200 * time.Millisecond, request: (*quiet).list},
		{kind: "search", every: 200 * time.Millisecond, request: (*quiet).search},
		{kind: "suppress", every: 200 * time.Millisecond, request: (*quiet).suppress},
		{kind: "upload", every: 200 * time.Millisecond, request: (*quiet).upload, uploads: true},
	}
}

// quiet is the company that is measured.
type quiet struct {
	cluster *cluster.Cluster
	client  *client
	hook    *endpoint
	run     string // distinguishes names between runs

	mu       sync.Mutex
	serial   int
	first    uuid.UUID // an email that was sent before the measurements
	times    map[string][]time.Duration
	refused  map[string]map[int]int
	accepted []uuid.UUID // of the kind "send"
}

func newQuiet(ctx context.Context, s *cluster.Cluster) (*quiet, error) {
	key, err := s.Key(ctx, quietName, "Vizinha <aviso@vizinha.example>")
	if err != nil {
		return nil, err
	}
	q := &quiet{cluster: s, client: newClient(s.APIs()[0], key), run: uuid.NewString()[:8]}
	if q.hook, err = newEndpoint(nil); err != nil {
		return nil, err
	}
	if err := q.client.createWebhook(ctx, q.hook.URL, "email.sent"); err != nil {
		return nil, errors.Join(err, q.hook.Close())
	}
	got, err := q.client.do(ctx, q.send(0))
	if err != nil || got.status != http.StatusAccepted {
		return nil, fmt.Errorf("the first email: %d %s: %w", got.status, got.body, err)
	}
	if q.first, err = outboxID(got); err != nil {
		return nil, err
	}
	// After the first email at SES all programs are running.
	waiting, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	for len(s.Mail.Simulator.Requests(q.first.String())) == 0 {
		if err := service.Pause(waiting, 20*time.Millisecond); err != nil {
			return nil, fmt.Errorf("await the first email at SES: %w", err)
		}
	}
	return q, nil
}

func (q *quiet) close() error {
	q.client.close()
	return q.hook.Close()
}

// measure sends requests at fixed intervals without waiting for earlier responses, and waits until
// SES has received a request for every email.
func (q *quiet) measure(ctx context.Context, length time.Duration, uploads bool) (Measurement, error) {
	q.mu.Lock()
	q.times, q.refused, q.accepted = make(map[string][]time.Duration), make(map[string]map[int]int), nil
	q.mu.Unlock()
	measuring, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	start, before := time.Now(), q.cluster.Mail.Simulator.Summary().Requests
	var asking sync.WaitGroup
	for _, p := range probes() {
		if p.uploads && !uploads {
			continue
		}
		asking.Go(func() { q.repeat(ctx, measuring, p, length) })
	}
	asking.Wait()
	rate := float64(q.cluster.Mail.Simulator.Summary().Requests-before) / time.Since(start).Seconds()
	sent, err := q.awaitSES(ctx)
	if err != nil {
		return Measurement{}, err
	}
	delivered := q.awaitDeliveries(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	m := Measurement{Requests: make(map[string]Figures), Sending: sent, Deliveries: delivered, Rate: rate}
	for _, p := range probes() {
		if f := figures(q.times[p.kind], q.refused[p.kind]); f.Count > 0 {
			m.Requests[p.kind] = f
		}
	}
	return m, ctx.Err()
}

// repeat sends one kind of request until measuring ends, and waits for the responses.
func (q *quiet) repeat(ctx, measuring context.Context, p probe, length time.Duration) {
	every := p.every
	if length < shortest && !p.fixed {
		every = max(every*length/shortest, 100*time.Millisecond)
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	start := time.Now()
	for n := 1; service.Pause(measuring, time.Until(start.Add(time.Duration(n)*every))) == nil; n++ {
		q.mu.Lock()
		q.serial++
		r := p.request(q, q.serial)
		q.mu.Unlock()
		asking.Go(func() { q.ask(ctx, p.kind, r) })
	}
}

// ask sends one request and records its time.
func (q *quiet) ask(ctx context.Context, kind string, r request) {
	start := time.Now()
	got, err := q.client.do(ctx, r)
	took := time.Since(start)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil || got.status >= http.StatusMultipleChoices {
		if q.refused[kind] == nil {
			q.refused[kind] = make(map[int]int)
		}
		q.refused[kind][got.status]++
		return
	}
	q.times[kind] = append(q.times[kind], took)
	if kind != "send" {
		return
	}
	if id, err := outboxID(got); err == nil {
		q.accepted = append(q.accepted, id)
	}
}

// awaitSES waits until SES has received a request for every email, and returns their latencies. An
// email without a request counts as refused.
func (q *quiet) awaitSES(ctx context.Context) (Figures, error) {
	q.mu.Lock()
	ids := q.accepted
	q.mu.Unlock()
	waits := make([]time.Duration, 0, len(ids))
	waiting, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for len(ids) > 0 {
		requests := q.cluster.Mail.Simulator.Requests(ids[0].String())
		if len(requests) == 0 {
			if service.Pause(waiting, 20*time.Millisecond) != nil {
				break
			}
			continue
		}
		waits = append(waits, max(requests[0].Time.Sub(acceptedAt(ids[0])), 0))
		ids = ids[1:]
	}
	if ctx.Err() != nil {
		return Figures{}, ctx.Err()
	}
	missing := map[int]int(nil)
	for _, id := range ids {
		if requests := q.cluster.Mail.Simulator.Requests(id.String()); len(requests) > 0 {
			waits = append(waits, requests[0].Time.Sub(acceptedAt(id)))
			continue
		}
		if missing == nil {
			missing = make(map[int]int)
		}
		missing[0]++
	}
	return figures(waits, missing), nil
}

// awaitDeliveries waits until the event SENT of every email has arrived at the webhook endpoint, and
// returns how long after the event that was. One that has not arrived counts as refused.
func (q *quiet) awaitDeliveries(ctx context.Context) Figures {
	q.mu.Lock()
	ids := q.accepted
	q.mu.Unlock()
	waiting, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	delays := make([]time.Duration, 0, len(ids))
	missing := map[int]int(nil)
	for _, id := range ids {
		delay, found := q.hook.delayOf(id.String())
		for !found && service.Pause(waiting, 20*time.Millisecond) == nil {
			delay, found = q.hook.delayOf(id.String())
		}
		if found {
			delays = append(delays, delay)
			continue
		}
		if missing == nil {
			missing = make(map[int]int)
		}
		missing[0]++
	}
	return figures(delays, missing)
}

// acceptedAt is when the api received the request: the latency includes the commit.
func acceptedAt(id uuid.UUID) time.Time {
	sec, nsec := id.Time().UnixTime()
	return time.Unix(sec, nsec)
}

func (q *quiet) mail(n int, more map[string]any) request {
	to := fmt.Sprintf("cliente%d@vizinha-%s.example", n, q.run)
	body := map[string]any{
		"to": to, "subject": "Seu código de acesso", "html": fmt.Sprintf("<p>%d</p>", n),
		"recipient": map[string]any{"externalId": fmt.Sprintf("cliente-%d", n), "email": to},
	}
	for name, value := range more {
		body[name] = value
	}
	return request{method: http.MethodPost, path: "/v1/email/send", idempotency: fmt.Sprintf("%s-%d", q.run, n), body: encode(body)}
}

func (q *quiet) send(n int) request { return q.mail(n, nil) }

// sendLarge is due tomorrow, so that no large emails are sent.
func (q *quiet) sendLarge(n int) request {
	return q.mail(n, map[string]any{"html": "<p>" + strings.Repeat("fatura ", 100<<10/7) + "</p>", "sendAt": tomorrow()})
}

func (q *quiet) readEmail(int) request {
	return request{method: http.MethodGet, path: "/v1/email/" + q.first.String()}
}

func (q *quiet) list(int) request {
	return request{method: http.MethodGet, path: "/v1/emails?limit=50"}
}

func (q *quiet) search(int) request {
	return request{method: http.MethodGet, path: fmt.Sprintf("/v1/emails?recipient=cliente0@vizinha-%s.example", q.run)}
}

// suppress is a write that waits for no other resource.
func (q *quiet) suppress(n int) request {
	address := fmt.Sprintf("saiu%d@vizinha-%s.example", n, q.run)
	return request{method: http.MethodPost, path: "/v1/suppressions", body: encode(map[string]any{"address": address, "reason": "MANUAL"})}
}

// upload is a dry run of a mailing with three rows.
func (q *quiet) upload(n int) request {
	r, err := mailingRequest(fmt.Sprintf("lista-%s-%d.csv", q.run, n), rows("vizinha.example", n*3, 3), map[string]string{"dryRun": "true"})
	if err != nil {
		return request{method: http.MethodPost, path: "/mailings"} // is refused, which the measurement shows
	}
	return r
}

func outboxID(a response) (uuid.UUID, error) {
	var accepted struct{ OutboxID uuid.UUID }
	if err := json.Unmarshal(a.body, &accepted); err != nil {
		return uuid.Nil, fmt.Errorf("read answer %.200q: %w", a.body, err)
	}
	return accepted.OutboxID, nil
}

func tomorrow() string { return time.Now().Add(24 * time.Hour).Format(time.RFC3339) }

func encode(body any) []byte {
	text, _ := json.Marshal(body) // maps of strings and numbers always can
	return text
}
