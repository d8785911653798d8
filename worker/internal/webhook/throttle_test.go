package webhook_test

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	webhookstore "email-gateway/shared/store/webhook"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/webhook"
)

// hours is a schedule whose waits are longer than any test.
var hours = email.Backoff{time.Hour, time.Hour, time.Hour}

// rate is a token bucket.
type rate struct {
	perSecond float64
	burst     float64

	mu   sync.Mutex
	left float64
	at   time.Time
}

// take reports whether a request is within the rate.
func (r *rate) take() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.at.IsZero() {
		r.left = r.burst
	} else {
		r.left = min(r.left+now.Sub(r.at).Seconds()*r.perSecond, r.burst)
	}
	r.at = now
	if r.left < 1 {
		return false
	}
	r.left--
	return true
}

// An endpoint that accepts only some requests per second gets about that many. It is not down, and the throttled
// responses use no attempts of deliveries.
func TestService_Throttled(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		after  string
		rate   *rate
	}{
		"429":                  {http.StatusTooManyRequests, "", &rate{perSecond: 10, burst: 5}},
		"503":                  {http.StatusServiceUnavailable, "", &rate{perSecond: 10, burst: 5}},
		"429 with Retry-After": {http.StatusTooManyRequests, "1", &rate{perSecond: 10, burst: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			company := w.Company(t)
			r := w.endpoint(t, company, "email.received")
			r.after = tt.after
			r.setAnswer(func(message) int {
				if tt.rate.take() {
					return http.StatusOK
				}
				return tt.status
			})
			w.start(t, func(p *webhook.Params) { p.Schedule = hours })
			const events = 100
			w.emit(t, company, events, 1)
			most := 0
			waittest.Until(t, "all events", func() bool {
				most = max(most, w.find(t, r).Failures)
				return len(r.messages()) >= events
			})
			r.check(t, w, events)
			if most >= webhookstore.DownFailures/2 {
				t.Errorf("%d failures in a row", most)
			}
			first, last := r.messages()[0], r.messages()[events-1]
			t.Logf("%d requests in %v", len(r.attempts()), last.At.Sub(first.At))
			if n := len(r.attempts()); n > 2*events {
				t.Errorf("%d requests for %d events", n, events)
			}
			waittest.Until(t, "the results", func() bool { e := w.find(t, r); return e.Open == 0 && e.Failures == 0 })
			for _, d := range w.deliveries(t, r, "") {
				if d.Attempts > 2 { // the first one and the success
					t.Errorf("%d attempts of a throttled delivery count", d.Attempts)
				}
			}
		})
	}
}

// An endpoint that throttles everything gets a request after pauses that grow. The event is delivered when it accepts
// one, long before the time of the schedule.
func TestService_ThrottledAlways(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company, "email.received")
	r.setAnswer(func(message) int { return http.StatusTooManyRequests })
	w.start(t, func(p *webhook.Params) { p.Schedule = hours })
	w.emit(t, company, 40, 1)
	waittest.Until(t, "pauses", func() bool { return w.find(t, r).Failures >= 3 })
	begun, n := w.find(t, r).FailingSince, len(r.attempts())
	if took := time.Since(*begun); took < 2*time.Second || n > 40 {
		t.Errorf("%d requests and three pauses in %v", n, took)
	}
	for _, d := range w.deliveries(t, r, "") {
		if d.Attempts != 1 {
			t.Errorf("%d attempts", d.Attempts)
		}
	}
	r.setAnswer(nil)
	waittest.Until(t, "all events", func() bool { return len(r.messages()) >= 40 })
	r.check(t, w, 40)
}

// An endpoint that answers 503 to every fifth request at any rate gets about one request in four more than events.
// TestLimits_ThrottledByChance has their rate.
func TestService_ThrottledByChance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company, "email.received")
	chance := rand.New(rand.NewPCG(1, 1))
	var mu sync.Mutex
	r.setAnswer(func(message) int {
		mu.Lock()
		defer mu.Unlock()
		if chance.IntN(5) == 0 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	w.start(t, func(p *webhook.Params) { p.Schedule = hours })
	const events = 800
	w.emit(t, company, events, 1)
	waittest.Until(t, "three quarters of the events", func() bool { return len(r.messages()) >= events*3/4 })
	requests := len(r.attempts()) // counted first: both numbers still grow
	if delivered := len(r.messages()); requests > delivered*4/3 {
		t.Errorf("%d requests for %d events", requests, delivered)
	}
}

// An endpoint that accepts less than one request per second keeps the lowest rate after a pause.
func TestService_ThrottledMost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company, "email.received")
	half := &rate{perSecond: 0.5, burst: 1}
	r.setAnswer(func(message) int {
		if half.take() {
			return http.StatusOK
		}
		return http.StatusTooManyRequests
	})
	w.start(t, func(p *webhook.Params) { p.Schedule = hours })
	w.emit(t, company, 40, 1)
	waittest.Until(t, "four events", func() bool { return len(r.messages()) >= 4 }) // the interval has its maximum
	requests, accepted := len(r.attempts()), len(r.messages())
	waittest.Until(t, "five more events", func() bool { return len(r.messages()) >= accepted+5 })
	n := len(r.attempts()) - requests
	t.Logf("%d requests for five events", n)
	if n > 20 {
		t.Errorf("%d requests for five events", n)
	}
}

// The rate of requests to a new URL does not depend on that of the old one.
func TestService_ThrottledURL(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company, "email.received")
	r.setAnswer(func(m message) int {
		if m.Path == "/moved" {
			return http.StatusOK
		}
		return http.StatusTooManyRequests
	})
	s := w.start(t, func(p *webhook.Params) { p.Schedule = hours })
	w.emit(t, company, 40, 1)
	waittest.Until(t, "a low rate", func() bool { return len(r.attempts()) >= 15 && s.Throttles(r.ID) })
	moved := r.URL + "/moved"
	if _, err := w.Hooks.Update(t.Context(), company, r.ID, webhookstore.Change{URL: &moved}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "10 deliveries", func() bool { return len(r.messages()) >= 10 })
	if s.Throttles(r.ID) { // 10 successes do not end the interval of the old URL
		t.Error("requests to the new URL have an interval")
	}
}

// A test and the retry of a delivery are the next requests to an endpoint that throttles everything, although other
// deliveries are overdue.
func TestService_ThrottledRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company, "email.received")
	r.setAnswer(func(message) int { return http.StatusTooManyRequests })
	w.start(t, func(p *webhook.Params) { p.Schedule = hours })
	w.emit(t, company, 40, 1)
	waittest.Until(t, "a pause", func() bool { return w.find(t, r).Failures >= 2 })
	next := func(what, event string) {
		t.Helper()
		begun := len(r.attempts())
		waittest.Until(t, what, func() bool {
			for i, m := range r.attempts()[begun:] {
				if m.ID == event {
					return true
				}
				if i > 1 { // a round may have been running
					t.Fatalf("%s: other deliveries come first", what)
				}
			}
			return false
		})
	}
	test, err := w.Hooks.CreateTest(t.Context(), company, r.ID, uuid.Must(uuid.NewV7()))
	if err != nil {
		t.Fatal(err)
	}
	next("the test", test.EventID)
	all := w.deliveries(t, r, webhookstore.Retrying)
	last := slices.MaxFunc(all, func(a, b webhookstore.Delivery) int { return a.NextAt.Compare(*b.NextAt) })
	if _, err := w.Hooks.RetryDelivery(t.Context(), company, r.ID, last.ID); err != nil {
		t.Fatal(err)
	}
	next("the retry", last.EventID)
}

// An endpoint that accepts one request in 11 is up and down in turn. The attempts of a delivery before its time do not
// count. When the endpoint accepts everything, all but those that have failed since the last success are delivered.
func TestService_RecoversSlowly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.Company(t)
	r := w.endpoint(t, company, "email.received")
	var n atomic.Int64
	r.setAnswer(func(message) int {
		if n.Add(1)%11 != 0 {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	w.start(t, func(p *webhook.Params) { p.Schedule, p.ProbeAfter = hours, 20*time.Millisecond })
	w.emit(t, company, 200, 1)
	waittest.Until(t, "10 deliveries", func() bool { return len(r.messages()) >= 10 })
	for _, d := range w.deliveries(t, r, "") {
		if d.Status == webhookstore.Failed || d.Status == webhookstore.Retrying && d.Attempts != 1 {
			t.Fatalf("%s after %d attempts within its first wait", d.Status, d.Attempts)
		}
	}
	if tried := len(r.attempts()); tried > 11*(len(r.messages())+1)+100 {
		t.Errorf("%d requests until %d deliveries", tried, len(r.messages()))
	}
	r.setAnswer(nil)
	waittest.Until(t, "the other deliveries", func() bool { return len(r.messages()) > 200-webhookstore.DownFailures })
}
