package neighbours

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/scripts/chaos/stage"
	"email-gateway/shared/service"
)

const (
	// patience is how long the quiet company waits for an answer, and then for SES to be asked
	// for the last of its emails.
	patience = 15 * time.Second
	// firstPatience is how long the first email may take to SES.
	firstPatience = time.Minute
	// quietName is the company that does nothing but a few requests per second.
	quietName = "Vizinha"
	// shortest is a measurement with which the intervals below give each kind 100 requests; in
	// a shorter one they come at shorter intervals.
	shortest = 20 * time.Second
)

// probe is one kind of request of the quiet company.
type probe struct {
	kind  string
	every time.Duration
	// fixed keeps the interval in short measurements too: more emails per second would be more
	// than a company's part of the send rate beside another one's flood.
	fixed bool
	// request makes the n-th one.
	request func(q *quiet, n int) request
	uploads bool // measured only where uploads are
}

// probes are what another company does. With 100 requests or more the 99th percentile is not
// the slowest of all.
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
	stage  *stage.Stage
	client *client
	run    string // distinguishes the names of this run

	mu       sync.Mutex
	serial   int
	first    uuid.UUID // an email that was sent long ago
	times    map[string][]time.Duration
	refused  map[string]map[int]int
	accepted []uuid.UUID // of the kind "send"
}

func newQuiet(ctx context.Context, s *stage.Stage) (*quiet, error) {
	key, err := s.Key(ctx, quietName, "Vizinha <aviso@vizinha.example>")
	if err != nil {
		return nil, err
	}
	q := &quiet{stage: s, client: newClient(s.APIs()[0], key), run: uuid.NewString()[:8]}
	got, err := q.client.do(ctx, q.send(0))
	if err != nil || got.status != http.StatusAccepted {
		return nil, fmt.Errorf("the first email: %d %s: %w", got.status, got.body, err)
	}
	if q.first, err = outboxID(got); err != nil {
		return nil, err
	}
	// From then on all programs are at work.
	waiting, cancel := context.WithTimeout(ctx, firstPatience)
	defer cancel()
	for len(s.Mail.Simulator.Requests(q.first.String())) == 0 {
		if err := service.Pause(waiting, 20*time.Millisecond); err != nil {
			return nil, fmt.Errorf("await the first email at SES: %w", err)
		}
	}
	return q, nil
}

func (q *quiet) close() { q.client.close() }

// measure makes requests at fixed intervals, whether the ones before are answered or not, and
// waits until SES was asked for every email.
func (q *quiet) measure(ctx context.Context, length time.Duration, uploads bool) (Measurement, error) {
	q.mu.Lock()
	q.times, q.refused, q.accepted = make(map[string][]time.Duration), make(map[string]map[int]int), nil
	q.mu.Unlock()
	measuring, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	begun, before := time.Now(), q.stage.Mail.Simulator.Summary().Requests
	var asking sync.WaitGroup
	for _, p := range probes() {
		if p.uploads && !uploads {
			continue
		}
		asking.Go(func() { q.repeat(ctx, measuring, p, length) })
	}
	asking.Wait()
	rate := float64(q.stage.Mail.Simulator.Summary().Requests-before) / time.Since(begun).Seconds()
	sent, err := q.awaitSES(ctx)
	if err != nil {
		return Measurement{}, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	m := Measurement{Requests: make(map[string]Figures), Sending: sent, Rate: rate}
	for _, p := range probes() {
		if f := figures(q.times[p.kind], q.refused[p.kind]); f.Count > 0 {
			m.Requests[p.kind] = f
		}
	}
	return m, ctx.Err()
}

// repeat makes one kind of request until measuring ends, and waits for the answers.
func (q *quiet) repeat(ctx, measuring context.Context, p probe, length time.Duration) {
	every := p.every
	if length < shortest && !p.fixed {
		every = max(every*length/shortest, 100*time.Millisecond)
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	begun := time.Now()
	for n := 1; service.Pause(measuring, time.Until(begun.Add(time.Duration(n)*every))) == nil; n++ {
		q.mu.Lock()
		q.serial++
		r := p.request(q, q.serial)
		q.mu.Unlock()
		asking.Go(func() { q.ask(ctx, p.kind, r) })
	}
}

// ask makes one request and notes its time.
func (q *quiet) ask(ctx context.Context, kind string, r request) {
	begun := time.Now()
	got, err := q.client.do(ctx, r)
	took := time.Since(begun)
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

// awaitSES waits until SES was asked for every email, and returns how long each had waited. One
// that SES was not asked for counts as refused.
func (q *quiet) awaitSES(ctx context.Context) (Figures, error) {
	q.mu.Lock()
	ids := q.accepted
	q.mu.Unlock()
	waits := make([]time.Duration, 0, len(ids))
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for len(ids) > 0 {
		requests := q.stage.Mail.Simulator.Requests(ids[0].String())
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
		if requests := q.stage.Mail.Simulator.Requests(id.String()); len(requests) > 0 {
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

// acceptedAt is when the api took the request: the commit is part of the time.
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

// sendLarge is due tomorrow, so that large emails are not what is sent.
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

// suppress is a write that waits for nothing.
func (q *quiet) suppress(n int) request {
	address := fmt.Sprintf("saiu%d@vizinha-%s.example", n, q.run)
	return request{method: http.MethodPost, path: "/v1/suppressions", body: encode(map[string]any{"address": address, "reason": "MANUAL"})}
}

// upload is a mailing that only checks its three rows.
func (q *quiet) upload(n int) request {
	r, err := mailingRequest(fmt.Sprintf("lista-%s-%d.csv", q.run, n), rows("vizinha.example", n*3, 3), map[string]string{"dryRun": "true"})
	if err != nil {
		return request{method: http.MethodPost, path: "/mailings"} // refused, and seen as such
	}
	return r
}

func outboxID(a answer) (uuid.UUID, error) {
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
