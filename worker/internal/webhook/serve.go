package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/standardwebhook"
	webhookstore "email-gateway/shared/store/webhook"
)

const (
	// pageSize is the number of events in a page.
	pageSize = 100
	// startLimit is the initial maximum of requests in flight to an endpoint. Successes raise it to maxConcurrent; a
	// failure or a slow response lowers it to 1.
	startLimit    = 4
	maxConcurrent = 16
)

// server serves one endpoint while it has its lease.
type server struct {
	*Service
	store  limitedStore
	lease  webhookstore.Lease
	held   *held
	limits *endpointLimits
	// replayed means that the previous round was that of a replay.
	replayed bool
	fault    error // a panic of an attempt
}

// serve serves an endpoint until nothing is due, or its turn is over. ErrLeaseLost: the endpoint is disabled, deleted
// or served by another process, or this process stops.
func (s *Service) serve(ctx context.Context, w webhookstore.Work) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lease := webhookstore.Lease{EndpointID: w.EndpointID, Token: uuid.New()}
	start := time.Now()
	if err := s.p.Store.Take(ctx, lease, leaseTime); err != nil {
		return err
	}
	crashpoint.At(crashpoint.WebhookLeased)
	h := newHeld(start)
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		if err := s.p.Store.Release(last, lease); err != nil {
			s.p.Log.Warn("lease of webhook endpoint not released: it expires automatically", "webhookId", w.EndpointID, "error", err.Error())
		}
	}()
	go s.renew(ctx, cancel, lease, h)
	serving := &server{Service: s, store: limitedStore{s.p.Store, s.statements, w.CompanyID}, lease: lease, held: h, limits: s.limitsOf(w.EndpointID)}
	defer s.saveLimits(w.EndpointID, serving.limits)
	for {
		more, err := serving.round(ctx)
		if ctx.Err() != nil {
			return webhookstore.ErrLeaseLost
		}
		if err != nil || !more || s.stopping.Load() || s.mustYield(w, start) {
			return err
		}
	}
}

// round attempts the due deliveries. If there are none, it attempts a page of new events or of a replay.
func (s *server) round(ctx context.Context) (more bool, err error) {
	r, err := s.store.Load(ctx, s.lease, s.p.ProbeAfter)
	if err != nil {
		return false, err
	}
	if r.NotBefore != nil { // an earlier round has begun a pause
		return false, nil
	}
	s.limits.use(r.URL)
	if r.Failures > 0 {
		s.limits.limitToOne()
	}
	secrets, err := s.secrets(r.Endpoint)
	if err != nil {
		return false, err
	}
	if len(r.Due) > 0 {
		return s.retryDue(ctx, r, secrets)
	}
	// New events and a replay alternate. A replay waits while the endpoint is down.
	replays := r.Replay != nil && r.Open < webhookstore.MaxOpen && (r.Open == 0 || !r.Down())
	if s.replayed = replays && !s.replayed; s.replayed {
		return s.replay(ctx, r, secrets)
	}
	more, err = s.page(ctx, r, secrets)
	return more || replays, err
}

// secrets decrypts the secrets that sign requests.
func (s *Service) secrets(e webhookstore.Endpoint) ([]standardwebhook.Secret, error) {
	var all []standardwebhook.Secret
	for _, encrypted := range [][]byte{e.Secret, e.OldSecret} {
		if encrypted == nil {
			continue
		}
		text, err := s.p.Ring.Open(e.CompanyID, encrypted)
		if err != nil {
			return nil, fmt.Errorf("decrypt webhook secret: %w", err)
		}
		secret, err := standardwebhook.ParseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("parse webhook secret: %w", err)
		}
		all = append(all, secret)
	}
	return all, nil
}
