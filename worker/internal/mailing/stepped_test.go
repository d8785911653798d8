package mailing_test

import (
	"context"
	"time"

	"github.com/google/uuid"

	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/worker/internal/mailing"
)

// steppedStore calls a hook before and after each step; an error of the hook replaces the step, or
// its answer.
type steppedStore struct {
	mailing.Store
	before, after func(step string) error
}

func step[R any](s *steppedStore, name string, take func() (R, error)) (R, error) {
	var none R
	if s.before != nil {
		if err := s.before(name); err != nil {
			return none, err
		}
	}
	r, err := take()
	if s.after != nil && err == nil {
		if err := s.after(name); err != nil {
			return none, err
		}
	}
	return r, err
}

type locked struct {
	job  mailingstore.Job
	lock mailingstore.Lock
}

func (s *steppedStore) LockMailing(ctx context.Context, id uuid.UUID, generation int, stale, live time.Duration) (mailingstore.Job, mailingstore.Lock, error) {
	l, err := step(s, "LockMailing", func() (locked, error) {
		job, lock, err := s.Store.LockMailing(ctx, id, generation, stale, live)
		return locked{job, lock}, err
	})
	return l.job, l.lock, err
}

func (s *steppedStore) HoldMailing(ctx context.Context, job *mailingstore.Job) (bool, error) {
	return step(s, "HoldMailing", func() (bool, error) { return s.Store.HoldMailing(ctx, job) })
}

func (s *steppedStore) CountLane(ctx context.Context, lane int64, limit int) (int, error) {
	return step(s, "CountLane", func() (int, error) { return s.Store.CountLane(ctx, lane, limit) })
}

func (s *steppedStore) NextEntries(ctx context.Context, job *mailingstore.Job, positions []int64, limit int) (mailingstore.EntryPage, error) {
	return step(s, "NextEntries", func() (mailingstore.EntryPage, error) { return s.Store.NextEntries(ctx, job, positions, limit) })
}

type expansion struct {
	queued int
	held   bool
}

func (s *steppedStore) Expand(ctx context.Context, job *mailingstore.Job, x mailingstore.Expansion) (int, bool, error) {
	before := *job // a lost answer returns nothing
	e, err := step(s, "Expand", func() (expansion, error) {
		queued, held, err := s.Store.Expand(ctx, job, x)
		return expansion{queued, held}, err
	})
	if err != nil {
		*job = before
	}
	return e.queued, e.held, err
}

func (s *steppedStore) FailJob(ctx context.Context, job *mailingstore.Job, f mailingstore.FailedJob) (bool, error) {
	return step(s, "FailJob", func() (bool, error) { return s.Store.FailJob(ctx, job, f) })
}
