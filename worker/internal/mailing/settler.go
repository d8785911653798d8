package mailing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
)

const (
	// settleInterval is how late a cancel reaches the entries at most. The lane itself is closed at
	// once.
	settleInterval = time.Second
	// settleBatch bounds a round; settlers is how many transitions run concurrently: the Advancer
	// groups those into one commit.
	settleBatch = 1000
	settlers    = 128
)

// SettleStore has the database operations of the settler.
type SettleStore interface {
	SettlingMailings(ctx context.Context) ([]uuid.UUID, error)
	SettleMailing(ctx context.Context, id uuid.UUID, limit int,
		move func(context.Context, store.SettleKind, []uuid.UUID) (locked []uuid.UUID, err error)) (store.Settled, error)
	Wake(ctx context.Context) error
}

// Advancer changes an email's status.
type Advancer interface {
	Advance(ctx context.Context, t store.Transition) (store.Advanced, error)
}

// SettlerParams configure a Settler.
type SettlerParams struct {
	Log      *slog.Logger
	Store    SettleStore
	Advancer Advancer
	Registry prometheus.Registerer
	// TTL is the time to the new deadline of an email that is sent again.
	TTL time.Duration
}

// Settler applies a mailing's cancel or retry-failed to its entries: it cancels those that have not
// ended, or sends the failed ones again.
type Settler struct {
	*service.Loop
	params  SettlerParams
	settled *prometheus.CounterVec
	rest    pacer
}

// NewSettler makes a settler that is not running yet.
func NewSettler(p SettlerParams) *Settler {
	s := &Settler{params: p, rest: make(pacer), settled: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mailing_settled_entries_total", Help: "Mailing entries that were cancelled (cancel) or sent again (retry-failed).",
	}, []string{"kind"})}
	for _, kind := range []store.SettleKind{store.SettleCancel, store.SettleRetryFailed} {
		s.settled.WithLabelValues(string(kind))
	}
	p.Registry.MustRegister(s.settled)
	s.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: settleInterval, RunOnce: s.runOnce})
	return s
}

// runOnce gives each mailing one round, so that a large one does not delay the others.
func (s *Settler) runOnce(ctx context.Context) (more bool, err error) {
	mailings, err := s.params.Store.SettlingMailings(ctx)
	if err != nil {
		return false, err
	}
	s.rest.keep(mailings)
	var errs []error
	for _, id := range mailings {
		begun := time.Now()
		if !s.rest.due(id, begun) {
			continue
		}
		moved := atomic.Int64{}
		done, err := s.params.Store.SettleMailing(ctx, id, settleBatch, func(ctx context.Context, kind store.SettleKind, emails []uuid.UUID) ([]uuid.UUID, error) {
			n, locked, err := s.move(ctx, id, kind, emails)
			moved.Store(int64(n))
			return locked, err
		})
		if err != nil {
			s.rest.wait(id, begun, settleInterval)
			errs = append(errs, fmt.Errorf("mailing %s: %w", id, err))
			continue
		}
		if n := int(moved.Load()) + done.Cancelled; n > 0 {
			s.settled.WithLabelValues(string(done.Kind)).Add(float64(n))
		}
		switch {
		case done.More:
			more = true
		case done.Left:
			s.rest.wait(id, begun, settleInterval)
		case done.Kind != "":
			s.params.Log.Info("cancel or retry-failed applied to all entries of the mailing", "mailingId", id, "kind", done.Kind)
		}
		if done.Kind == store.SettleRetryFailed && moved.Load() > 0 {
			errs = append(errs, s.params.Store.Wake(ctx))
		}
	}
	return more, errors.Join(errs...)
}

// move changes the emails' status, and returns how many changed and which are locked. One that
// cannot be written must not block the others.
func (s *Settler) move(ctx context.Context, mailing uuid.UUID, kind store.SettleKind, emails []uuid.UUID) (int, []uuid.UUID, error) {
	held := make([]bool, len(emails))
	var moved atomic.Int64
	var failed atomic.Int64
	var passing atomic.Bool // a temporary error: the round is incomplete
	var moving errgroup.Group
	moving.SetLimit(settlers)
	for i, id := range emails {
		moving.Go(func() error {
			done, err := s.params.Advancer.Advance(ctx, s.transition(id, mailing, kind))
			if err != nil {
				failed.Add(1)
				if store.IsOutage(err) {
					passing.Store(true)
				}
			}
			if done.Applied {
				moved.Add(1)
			}
			held[i] = done.Locked
			return err
		})
	}
	err := moving.Wait()
	if err != nil && !passing.Load() && int(failed.Load()) < len(emails) && ctx.Err() == nil {
		s.params.Log.Error("cannot update some emails of the mailing", "mailingId", mailing, "count", failed.Load(), "error", email.MaskText(err.Error()))
		err = nil
	}
	var locked []uuid.UUID
	for i, id := range emails {
		if held[i] {
			locked = append(locked, id)
		}
	}
	return int(moved.Load()), locked, err
}

func (s *Settler) transition(id, mailing uuid.UUID, kind store.SettleKind) store.Transition {
	metadata := map[string]any{"by": "mailing", "mailingId": mailing}
	if kind == store.SettleRetryFailed {
		return store.Transition{
			ID: id, Guard: store.GuardReplay, Status: email.Pending, Renew: s.params.TTL,
			Events: []email.Event{{Type: email.EventReplayed, At: time.Now().UTC(), Metadata: metadata}},
		}
	}
	return store.Transition{
		ID: id, Guard: store.GuardOpen, Status: email.Cancelled,
		Events: []email.Event{{Type: email.EventCancelled, At: time.Now().UTC(), Metadata: metadata}},
	}
}
