package mailing_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/storetest"
	"email-gateway/worker/internal/mx"
	"email-gateway/worker/internal/queue"
)

func TestProcessor_ConcurrentJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.mailing(t, many(60)...)
	p := b.params()
	p.BatchSize = 7
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() {
			if err := handle(t.Context(), p, taskOf(id, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	working.Wait()
	b.expandedOnce(t, id, len(ids))
}

// Two jobs both consider themselves the holder: one that was silent too long, and the one that took
// over. Only one of them can commit a batch, and the other stops.
func TestProcessor_TakenOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.mailing(t, many(20)...)
	p := b.params()
	p.BatchSize = 5
	first := p
	steps := 0
	first.Store = &steppedStore{Store: b.Store, before: func(step string) error {
		if steps++; step == "Expand" && steps > 4 {
			steps = -100 // once
			b.exec(t, `UPDATE mailings SET last_attempt = now() - interval '31 s'`)
			if err := handle(t.Context(), p, taskOf(id, 1)); err != nil {
				t.Error(err)
			}
		}
		return nil
	}}
	wantUncounted(t, handle(t.Context(), first, taskOf(id, 1)))
	b.expandedOnce(t, id, len(ids))
	if err := handle(t.Context(), p, taskOf(id, 1)); err != nil {
		t.Errorf("on redelivery: %v", err)
	}
}

// A job that was silent too long has lost the mailing: neither its heartbeat nor its last failure
// affects it.
func TestProcessor_SilentJobFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.mailing(t, many(3)...)
	task := taskOf(id, 1)
	task.LastTry = true
	var lock mailingstore.Lock
	p := b.params()
	p.Store = &steppedStore{Store: b.Store, before: func(step string) (err error) {
		if step != "NextEntries" {
			return nil
		}
		b.exec(t, `UPDATE mailings SET last_attempt = now() - interval '31 s'`)
		if _, lock, err = b.Store.LockMailing(t.Context(), id, 1, p.StaleAfter, 10*time.Second); err != nil || lock != mailingstore.Locked {
			t.Errorf("it is not taken over: %v, %v", lock, err)
		}
		old := mailingstore.Job{ID: id, Generation: 1, Heartbeat: time.Now().Add(-31 * time.Second)}
		if held, err := b.Store.HoldMailing(t.Context(), &old); err != nil || held {
			t.Errorf("the silent job holds it: %v, %v", held, err)
		}
		return errors.New("failed")
	}}
	wantUncounted(t, handle(t.Context(), p, task))
	b.want(t, "PROCESSING 0 0", `SELECT status || ' ' || attempts || ' ' || (SELECT count(*) FROM dead_letters) FROM mailings`)
	b.exec(t, `UPDATE mailings SET last_attempt = NULL`)
	if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	b.expandedOnce(t, id, len(ids))
}

// A pause or cancel during a job applies from the next batch on.
func TestProcessor_PausedOrCancelledMeanwhile(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"PAUSED", "CANCELLED"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			id, _ := b.mailing(t, many(10)...)
			p := b.params()
			p.BatchSize = 4
			batches := 0
			p.Store = &steppedStore{Store: b.Store, before: func(step string) error {
				if step == "Expand" {
					if batches++; batches == 2 {
						b.exec(t, `UPDATE mailings SET status = $1`, status)
					}
				}
				return nil
			}}
			wantUncounted(t, handle(t.Context(), p, taskOf(id, 1)))
			b.want(t, status+" 4 1", `SELECT status || ' ' || processed_lines || ' ' || generation FROM mailings`)
			b.want(t, "4", `SELECT count(*)::text FROM email_outbox`)
			if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
				t.Errorf("on redelivery: %v", err)
			}
			if status == "PAUSED" { // resumed
				b.exec(t, `UPDATE mailings SET status = 'QUEUED', generation = 2`)
				if err := handle(t.Context(), b.params(), taskOf(id, 2)); err != nil {
					t.Fatal(err)
				}
				b.expandedOnce(t, id, 10)
			}
		})
	}
}

// A message is redelivered while the job of its first delivery still runs, because the connection was lost. It is
// retried without counting, and acknowledged once that job has ended.
func TestProcessor_RedeliveredWhileJobRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.mailing(t, many(10)...)
	task := taskOf(id, 1)
	again := task
	again.Redelivered = true
	p := b.params()
	p.BatchSize, p.JobTime = 4, time.Hour
	first := p
	batches := 0
	first.Store = &steppedStore{Store: b.Store, before: func(step string) error {
		if step == "NextEntries" {
			batches++
			wantUncounted(t, handle(t.Context(), p, again))
		}
		return nil
	}}
	if err := handle(t.Context(), first, task); err != nil {
		t.Fatal(err)
	}
	if batches != 3 {
		t.Errorf("%d batches, want 3", batches)
	}
	b.expandedOnce(t, id, len(ids))
	if err := handle(t.Context(), p, again); err != nil {
		t.Errorf("after the job: %v", err)
	}
	b.expandedOnce(t, id, len(ids))
}

func TestProcessor_MailingHolder(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change      string
		expanded    bool
		uncounted   bool
		redelivered bool
	}{
		"no job":                        {`status = 'QUEUED'`, true, false, false},
		"recovered":                     {`status = 'PENDING'`, true, false, false},
		"a live job":                    {`status = 'PROCESSING', last_attempt = now() - interval '5 s'`, false, false, false},
		"a live job, redelivered":       {`status = 'PROCESSING', last_attempt = now() - interval '5 s'`, false, true, true},
		"a silent job":                  {`status = 'PROCESSING', last_attempt = now() - interval '15 s'`, false, true, false},
		"a dead job":                    {`status = 'PROCESSING', last_attempt = now() - interval '31 s'`, true, false, false},
		"a job without a heartbeat":     {`status = 'PROCESSING', last_attempt = NULL`, true, false, false},
		"a newer generation":            {`generation = 2`, false, false, false},
		"a newer generation's dead job": {`generation = 2, status = 'PROCESSING', last_attempt = NULL`, false, false, false},
		"paused":                        {`status = 'PAUSED'`, false, false, false},
		"cancelled":                     {`status = 'CANCELLED'`, false, false, false},
		"failed":                        {`status = 'FAILED'`, false, false, false},
		"expanded, redelivered":         {`status = 'SENDING'`, false, false, true},
		"expanded":                      {`status = 'SENDING'`, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			id, _ := b.mailing(t, many(2)...)
			b.exec(t, `UPDATE mailings SET `+tt.change)
			task := taskOf(id, 1)
			task.Redelivered = tt.redelivered
			err := handle(t.Context(), b.params(), task)
			if tt.uncounted {
				wantUncounted(t, err)
			} else if err != nil {
				t.Error(err)
			}
			if got := ask[int](t, b, `SELECT count(*) FROM email_outbox`); (got == 2) != tt.expanded {
				t.Errorf("%d emails", got)
			}
		})
	}
}

// DNS may take longer than a job may be silent.
func TestProcessor_HeartbeatsWhileDNSIsSlow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.mailing(t, many(3)...)
	p := b.params()
	p.StaleAfter = 600 * time.Millisecond // a heartbeat every 100 ms
	beats := 0
	p.Store = &steppedStore{Store: b.Store, before: func(step string) error {
		if step == "HoldMailing" {
			beats++
		}
		return nil
	}}
	p.Domains = slowDomains(func() {
		storetest.WaitFor(t, b.Database, `SELECT last_attempt > created_at + interval '1 s' FROM mailings`)
	})
	if err := handle(t.Context(), p, taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	if beats < 2 {
		t.Errorf("%d heartbeats", beats)
	}
	b.expandedOnce(t, id, len(ids))

	// A job that loses the mailing meanwhile cancels its DNS queries.
	id, _ = b.mailing(t, many(3)...)
	p.Domains = endlessDomains{}
	p.Store = &steppedStore{Store: b.Store, before: func(step string) error {
		if step == "HoldMailing" {
			b.exec(t, `UPDATE mailings SET status = 'PAUSED' WHERE id = $1`, id)
		}
		return nil
	}}
	wantUncounted(t, handle(t.Context(), p, taskOf(id, 1)))
}

// slowDomains runs a function in the first check.
type slowDomains func()

func (s slowDomains) Check(context.Context, string) (mx.Result, error) {
	s()
	return mx.Result{Valid: true}, nil
}

// endlessDomains never answers.
type endlessDomains struct{}

func (endlessDomains) Check(ctx context.Context, _ string) (mx.Result, error) {
	<-ctx.Done()
	return mx.Result{}, ctx.Err()
}

func wantUncounted(t *testing.T, err error) {
	t.Helper()
	var later *queue.RetryLater
	if !errors.As(err, &later) || !later.Uncounted {
		t.Errorf("got %v, want a retry that does not count", err)
	}
}
