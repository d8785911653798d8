// Package webhook delivers events to the companies' webhook endpoints, by the Standard Webhooks specification. The
// worker runs its service; any number of workers may run.
//
// An endpoint is a cursor over its company's events (package event). One process at a time serves it, under a lease: it
// reads a page of events, sends them, and commits the cursor together with a row for each delivery that failed. After a
// crash before that commit the page is repeated, so events are delivered at least once, with the same webhook-id.
// Events of one email are delivered in order: they wait for an earlier one that failed.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/keyring"
	"email-gateway/shared/service"
	webhookstore "email-gateway/shared/store/webhook"
)

const (
	// tick is the interval at which the service looks for new events.
	tick = 250 * time.Millisecond
	// countInterval is how often endpoints are counted. If none is enabled, the service does nothing else.
	countInterval = 2 * time.Second
	// relistInterval is how often endpoints with events are listed even if there is no new event.
	relistInterval = 30 * time.Second
	// catchUpInterval is how often the cursors of endpoints without new events are advanced. It must be
	// shorter than the retention of events.
	catchUpInterval = time.Hour
	// maxActive limits the endpoints that a process serves at the same time, and so its memory and connections.
	maxActive = 256
	// turnTime is how long an endpoint with more deliveries keeps its place while the process serves as many endpoints
	// as it may, and others may be waiting.
	turnTime = 10 * time.Second
	// leaseTime is the duration of a lease, which is renewed after a third of it. Within leaseMargin of its end no
	// attempt is started, so that two processes do not serve an endpoint at the same time.
	leaseTime   = webhookstore.LeaseTime
	leaseMargin = attemptTime + 5*time.Second
	// stopTime limits how long attempts in flight may last after the service was stopped, and then each write.
	stopTime = 5 * time.Second
)

// Store has the database operations of the service. *webhook.SenderStore implements it.
type Store interface {
	Count(ctx context.Context) (webhookstore.Counts, error)
	Head(ctx context.Context) (int64, error)
	Due(ctx context.Context, probeAfter time.Duration, limit int) ([]webhookstore.Work, error)
	Behind(ctx context.Context, probeAfter time.Duration, limit int) ([]webhookstore.Work, error)
	Take(ctx context.Context, l webhookstore.Lease, d time.Duration) error
	Renew(ctx context.Context, l webhookstore.Lease, d time.Duration) error
	Release(ctx context.Context, l webhookstore.Lease) error
	Load(ctx context.Context, l webhookstore.Lease, probeAfter time.Duration) (webhookstore.Round, error)
	Record(ctx context.Context, l webhookstore.Lease, r webhookstore.Result, disableAfter time.Duration) (webhookstore.Recorded, error)
	Read(ctx context.Context, company uuid.UUID, after webhookstore.Cursor, filter []string, limit int) (webhookstore.EventPage, error)
	FindEvents(ctx context.Context, company uuid.UUID, ids []string) (map[string]webhookstore.Event, error)
	RecentlySuccessful(ctx context.Context, limit int) ([]string, error)
	ResetFailingSince(ctx context.Context, l webhookstore.Lease, unreachable time.Duration) error
	CatchUp(ctx context.Context) error
	ReplayFailed(ctx context.Context, l webhookstore.Lease, r webhookstore.Replay, limit int) (int, error)
}

// Params configure a Service. All are required.
type Params struct {
	Log     *slog.Logger
	Store   Store
	Sender  *Sender
	Ring    keyring.Ring
	Metrics *Metrics
	// Schedule are the waits between the attempts of a delivery.
	Schedule email.Backoff
	// ProbeAfter is the interval of probes of an endpoint that is down.
	ProbeAfter time.Duration
	// DisableAfter is how long an endpoint may fail before it is disabled.
	DisableAfter time.Duration
	// Concurrency is the maximum number of requests in flight, ConcurrencyPerCompany of one company.
	Concurrency, ConcurrencyPerCompany int
}

// Service finds endpoints with due deliveries, replays or new events, and serves them.
type Service struct {
	*service.Loop
	p     Params
	slots *slots // limits requests
	// statements limits the statements of endpoints.
	statements *slots
	schedule   schedule

	// Used by the loop only.
	counted time.Time
	enabled bool
	listed  time.Time
	relists time.Time // when the next listing may begin
	// unstarted are the endpoints of the last listing that were not started yet.
	unstarted []webhookstore.Work
	caught    time.Time
	head      int64

	maxServed        int // endpoints at the same time
	turnTime, relist time.Duration

	mu     sync.Mutex
	active map[uuid.UUID]webhookstore.Work
	left   map[uuid.UUID]time.Time // when an endpoint with more to do made room for others
	// throttling has the limits of endpoints that throttle, between their rounds.
	throttling map[uuid.UUID]*endpointLimits
	failures   *failures
	unserved   service.LogLimiter
	// ended: an endpoint is no longer served, or no longer waits after a failure. Until then it was not chosen, although it may
	// have events.
	ended    atomic.Bool
	stopping atomic.Bool // no attempt begins
	running  sync.WaitGroup
	stop     context.CancelFunc
	ctx      context.Context //nolint:containedctx // of the endpoints being served, which outlive a round
}

// New makes a Service that is not running yet.
func New(p Params) *Service {
	s := &Service{
		p: p, slots: newSlots(p.Concurrency, p.ConcurrencyPerCompany), statements: newSlots(maxStatements, maxStatementsPerCompany),
		maxServed: maxActive, turnTime: turnTime, relist: relistInterval, active: map[uuid.UUID]webhookstore.Work{}, left: map[uuid.UUID]time.Time{}, throttling: map[uuid.UUID]*endpointLimits{},
		failures: newFailures(), schedule: schedule{waits: p.Schedule, random: rand.Float64},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: tick, RunOnce: s.runOnce})
	return s
}

// Stop stops the loop, waits stopTime for the attempts in flight, and cancels the others. Another process repeats
// cancelled attempts, whose outcome is unknown.
func (s *Service) Stop(ctx context.Context) error {
	err := s.Loop.Stop(ctx)
	s.stopping.Store(true)
	defer s.stop()
	defer time.AfterFunc(stopTime, s.stop).Stop()
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.stop()
		err = errors.Join(err, ctx.Err())
	}
	s.p.Sender.Close()
	return err
}

// runOnce starts to serve endpoints with due deliveries, replays or new events.
func (s *Service) runOnce(ctx context.Context) (more bool, err error) {
	if time.Since(s.counted) >= countInterval {
		counts, err := s.p.Store.Count(ctx)
		if err != nil {
			return false, err
		}
		s.p.Metrics.count(counts)
		s.counted, s.enabled = time.Now(), counts.Enabled > 0
	}
	if s.enabled && time.Since(s.caught) >= catchUpInterval {
		if err := s.p.Store.CatchUp(ctx); err != nil {
			return false, err
		}
		s.caught = time.Now()
	}
	free := s.free()
	if !s.enabled || free == 0 {
		return false, nil
	}
	waiting := s.failures.count() // they must not take the places of others in the listings
	work, err := s.p.Store.Due(ctx, s.p.ProbeAfter, 2*maxActive+waiting)
	if err != nil {
		return false, err
	}
	head, err := s.p.Store.Head(ctx)
	if err != nil {
		return false, err
	}
	behind, err := s.behind(ctx, head, free, 4*maxActive+waiting)
	if err != nil {
		return false, err
	}
	chosen := s.choose(s.failures.without(append(work, behind...)), free)
	for _, w := range chosen {
		s.start(w)
	}
	s.unstarted = slices.DeleteFunc(s.unstarted, func(w webhookstore.Work) bool { return slices.Contains(chosen, w) })
	return false, nil
}

func (s *Service) free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.maxServed - len(s.active)
}

// mustYield reports whether an endpoint that has been served since start must make room for others.
func (s *Service) mustYield(w webhookstore.Work, start time.Time) bool {
	if time.Since(start) < s.turnTime || s.free() > 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[w.EndpointID] = time.Now()
	return true
}

// leftFor is how long an endpoint that has made room for others is chosen after others.
const leftFor = time.Minute

// choose returns at most free endpoints that this process does not serve. Endpoints of companies with fewer served
// endpoints come first. Among equal ones, endpoints that were served most recently come last.
func (s *Service) choose(work []webhookstore.Work, free int) []webhookstore.Work {
	s.mu.Lock()
	defer s.mu.Unlock()
	served := map[uuid.UUID]int{}
	for _, w := range s.active {
		served[w.CompanyID]++
	}
	type candidate struct {
		webhookstore.Work
		turn int
	}
	var candidates []candidate
	seen := map[uuid.UUID]bool{}
	for _, w := range work {
		if _, active := s.active[w.EndpointID]; active || seen[w.EndpointID] {
			continue
		}
		seen[w.EndpointID] = true
		candidates = append(candidates, candidate{w, served[w.CompanyID]})
		served[w.CompanyID]++
	}
	maps.DeleteFunc(s.left, func(_ uuid.UUID, at time.Time) bool { return time.Since(at) > leftFor })
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), s.left[a.EndpointID].Compare(s.left[b.EndpointID]))
	})
	chosen := make([]webhookstore.Work, 0, min(free, len(candidates)))
	for _, c := range candidates[:min(free, len(candidates))] {
		chosen = append(chosen, c.Work)
	}
	return chosen
}

// start serves an endpoint in the background.
func (s *Service) start(w webhookstore.Work) {
	s.mu.Lock()
	s.active[w.EndpointID] = w
	s.mu.Unlock()
	s.running.Go(func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.active, w.EndpointID)
			s.ended.Store(true)
		}()
		_, err := service.Recovered(func() (struct{}, error) { return struct{}{}, s.serve(s.ctx, w) })
		switch {
		case err == nil:
			s.failures.remove(w.EndpointID)
		case !errors.Is(err, webhookstore.ErrLeaseLost) && s.ctx.Err() == nil:
			s.failed(w, err)
		}
	})
}

// failed keeps an endpoint that could not be served from being chosen for some time. All endpoints may fail for one reason,
// which is logged with one of them.
func (s *Service) failed(w webhookstore.Work, err error) {
	s.p.Metrics.errors.Inc()
	wait, reason := s.failures.add(w.EndpointID), email.MaskText(err.Error())
	time.AfterFunc(wait, func() { s.ended.Store(true) })
	if omitted, ok := s.unserved.Allow(reason); ok {
		s.p.Log.Error("webhook endpoint not served", "webhookId", w.EndpointID, "companyId", w.CompanyID, "retryAfter", wait.String(),
			"omitted", omitted, "error", reason)
	}
}
