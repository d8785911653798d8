package mailing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/worker/internal/fairloop"
)

const (
	// actionInterval is how late a cancel reaches the entries at most. The lane itself is closed at
	// once.
	actionInterval = time.Second
	// actionBatch bounds a round; concurrentMoves is how many transitions run concurrently: the Advancer
	// groups those into one commit.
	actionBatch     = 1000
	concurrentMoves = 128
)

// EntryActionStore has the database operations of an EntryActionLoop.
type EntryActionStore interface {
	MailingsWithEntryAction(ctx context.Context) ([]mailingstore.ActionMailing, error)
	ApplyEntryAction(ctx context.Context, id uuid.UUID, limit int,
		move func(context.Context, mailingstore.EntryAction, []uuid.UUID) (locked []uuid.UUID, err error)) (mailingstore.EntryActionResult, error)
	Wake(ctx context.Context) error
}

// Advancer changes an email's status.
type Advancer interface {
	Advance(ctx context.Context, t outbox.Transition) (outbox.Advanced, error)
}

// EntryActionLoopParams configure an EntryActionLoop.
type EntryActionLoopParams struct {
	Log      *slog.Logger
	Store    EntryActionStore
	Advancer Advancer
	Registry prometheus.Registerer
}

// EntryActionLoop applies a mailing's cancel or retry-failed to its entries: it cancels those that have not
// ended, or sends the failed ones again.
type EntryActionLoop struct {
	*service.Loop
	params   EntryActionLoopParams
	changed  *prometheus.CounterVec
	schedule fairloop.Schedule
}

// NewEntryActionLoop makes an EntryActionLoop that is not running yet.
func NewEntryActionLoop(p EntryActionLoopParams) *EntryActionLoop {
	l := &EntryActionLoop{params: p, schedule: make(fairloop.Schedule), changed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mailing_settled_entries_total", Help: "Mailing entries that were cancelled (cancel) or sent again (retry-failed).",
	}, []string{"kind"})}
	for _, kind := range []mailingstore.EntryAction{mailingstore.ActionCancel, mailingstore.ActionRetryFailed} {
		l.changed.WithLabelValues(string(kind))
	}
	p.Registry.MustRegister(l.changed)
	l.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: actionInterval, RunOnce: l.runOnce})
	return l
}

// runOnce gives mailings one round each. Companies take turns, and a large mailing does not delay the others of its company.
func (l *EntryActionLoop) runOnce(ctx context.Context) (more bool, err error) {
	mailings, err := l.params.Store.MailingsWithEntryAction(ctx)
	if err != nil {
		return false, err
	}
	ids := make(map[uuid.UUID]bool, len(mailings))
	for _, m := range mailings {
		ids[m.ID] = true
	}
	l.schedule.Retain(ids)
	now := time.Now()
	mailings = slices.DeleteFunc(mailings, func(m mailingstore.ActionMailing) bool { return !l.schedule.Due(m.ID, now) })
	slices.SortStableFunc(mailings, func(a, b mailingstore.ActionMailing) int { return l.schedule.LongerDue(a.ID, b.ID) })
	var errs []error
	left := fairloop.Pass(mailings, func(m mailingstore.ActionMailing) uuid.UUID { return m.CompanyID }, fairloop.PassTime, func(m mailingstore.ActionMailing) {
		again, err := l.apply(ctx, m.ID)
		more = more || again
		errs = append(errs, err)
	})
	return more || left, errors.Join(errs...)
}

// apply runs one round of a mailing.
func (l *EntryActionLoop) apply(ctx context.Context, id uuid.UUID) (more bool, err error) {
	start := time.Now()
	moved := atomic.Int64{}
	done, err := l.params.Store.ApplyEntryAction(ctx, id, actionBatch, func(ctx context.Context, kind mailingstore.EntryAction, emails []uuid.UUID) ([]uuid.UUID, error) {
		n, locked, err := l.move(ctx, id, kind, emails)
		moved.Store(int64(n))
		return locked, err
	})
	if err != nil {
		l.schedule.Postpone(id, start, actionInterval)
		return false, fmt.Errorf("mailing %s: %w", id, err)
	}
	if n := int(moved.Load()) + done.Cancelled; n > 0 {
		l.changed.WithLabelValues(string(done.Kind)).Add(float64(n))
	}
	l.schedule.Requeue(id)
	switch {
	case done.More:
	case done.Left:
		l.schedule.Postpone(id, start, actionInterval)
	case done.Kind != "":
		l.params.Log.Info("cancel or retry-failed applied to all entries of the mailing", "mailingId", id, "kind", done.Kind)
	}
	if done.Kind == mailingstore.ActionRetryFailed && moved.Load() > 0 {
		err = l.params.Store.Wake(ctx)
	}
	return done.More, err
}

// move changes the emails' status, and returns how many changed and which are locked. One that
// cannot be written must not block the others.
func (l *EntryActionLoop) move(ctx context.Context, mailing uuid.UUID, kind mailingstore.EntryAction, emails []uuid.UUID) (int, []uuid.UUID, error) {
	held := make([]bool, len(emails))
	var moved atomic.Int64
	var failed atomic.Int64
	var passing atomic.Bool // a temporary error: the round is incomplete
	var moving errgroup.Group
	moving.SetLimit(concurrentMoves)
	for i, id := range emails {
		moving.Go(func() error {
			done, err := l.params.Advancer.Advance(ctx, l.transition(id, mailing, kind))
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
		l.params.Log.Error("cannot update some emails of the mailing", "mailingId", mailing, "count", failed.Load(), "error", email.MaskText(err.Error()))
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

func (l *EntryActionLoop) transition(id, mailing uuid.UUID, kind mailingstore.EntryAction) outbox.Transition {
	metadata := map[string]any{"by": "mailing", "mailingId": mailing}
	if kind == mailingstore.ActionRetryFailed {
		return outbox.Transition{
			ID: id, Guard: outbox.GuardReplay, Status: email.Pending,
			Events: []email.Event{{Type: email.EventReplayed, At: time.Now().UTC(), Metadata: metadata}},
		}
	}
	return outbox.Transition{
		ID: id, Guard: outbox.GuardOpen, Status: email.Cancelled,
		Events: []email.Event{{Type: email.EventCancelled, At: time.Now().UTC(), Metadata: metadata}},
	}
}
