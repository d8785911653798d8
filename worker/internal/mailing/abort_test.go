package mailing_test

import (
	"errors"
	"fmt"
	"testing"

	"email-gateway/shared/store"
	"email-gateway/worker/internal/queue"
)

// A worker that is killed between any two steps, or right after a step whose answer it did not
// receive, leaves a mailing that another worker completes with the same result.
func TestProcessor_CrashAtEachStep(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	killed := fmt.Errorf("%w: the process is gone", store.ErrUnavailable)
	for n, finished := 1, false; !finished; n++ {
		for _, behind := range []bool{false, true} {
			b.exec(t, `TRUNCATE mailings, mailing_entries, email_outbox, recipients`)
			id, ids := b.mailing(t, many(7)...)
			p := b.params()
			p.BatchSize = 3
			taken, dead := 0, false
			die := func(string) error {
				if taken++; taken >= n {
					dead = true
				}
				if dead {
					return killed
				}
				return nil
			}
			s := &steppedStore{Store: b.Store, before: die}
			if behind {
				s.before = func(string) error {
					if dead {
						return killed
					}
					return nil
				}
				s.after = die
			}
			broken := p
			broken.Store = s
			err := handle(t.Context(), broken, taskOf(id, 1))
			if finished = !dead; finished && err != nil {
				t.Fatal(err)
			}
			if dead && err != nil {
				wantUncounted(t, err)
			}
			// The message is redelivered at once, and again when the silence has lasted, until it is acknowledged.
			task, acknowledged := taskOf(id, 1), false
			task.Redelivered = true
			for _, silence := range []string{"1 s", "15 s", "31 s"} {
				b.exec(t, `UPDATE mailings SET last_attempt = now() - $1::interval WHERE status = 'PROCESSING'`, silence)
				if err := handle(t.Context(), p, task); err != nil {
					wantUncounted(t, err)
					continue
				}
				acknowledged = true
				break
			}
			if !acknowledged {
				t.Error("the message is not acknowledged")
			}
			b.expandedOnce(t, id, len(ids))
			if t.Failed() {
				t.Fatalf("killed at step %d, behind it: %v", n, behind)
			}
		}
	}
}

func TestProcessor_Errors(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.mailing(t, many(7)...)
	p := b.params()
	p.BatchSize = 3
	batches := 0
	p.Store = &steppedStore{Store: b.Store, before: func(step string) error {
		if step != "NextEntries" {
			return nil
		}
		if batches++; batches > 1 {
			return errors.New("invalid entry of ana@example.com")
		}
		return nil
	}}
	for try := 1; try <= 3; try++ {
		task := taskOf(id, 1)
		task.Retried, task.LastTry = try-1, try == 3
		err := handle(t.Context(), p, task)
		var later *queue.RetryLater
		var dead *queue.Dead
		switch {
		case try < 3 && (!errors.As(err, &later) || later.Uncounted):
			t.Errorf("try %d: %v", try, err)
		case try == 3 && !errors.As(err, &dead):
			t.Errorf("try %d: %v", try, err)
		}
		status := "PENDING"
		if try == 3 {
			status = "FAILED"
		}
		b.want(t, status+" true invalid entry of a***@e***.com", `SELECT status || ' ' || (last_attempt IS NULL) || ' ' || error_message FROM mailings`)
		b.want(t, fmt.Sprint(try), `SELECT attempts::text FROM mailings`)
		b.want(t, fmt.Sprint(try/3), `SELECT count(*)::text FROM dead_letters WHERE mailing_id = $1 AND company_id = $2 AND reason = 'MAILING_JOB_FAILED'
			AND target = 'mailing.process' AND attempts = 3 AND last_error LIKE 'invalid entry%' AND payload ->> 'mailingId' = $1::text`, id, b.company)
	}
	b.want(t, "3 true", `SELECT processed_lines || ' ' || (counted_at IS NULL) FROM mailings`)
	if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "FAILED", `SELECT status FROM mailings`)

	// Resumed, it continues where it stopped, and the job's failures no longer count.
	b.exec(t, `UPDATE mailings SET status = 'QUEUED', generation = 2`)
	if err := handle(t.Context(), b.params(), taskOf(id, 2)); err != nil {
		t.Fatal(err)
	}
	b.expandedOnce(t, id, len(ids))
	b.want(t, "0 true", `SELECT attempts || ' ' || (error_message IS NULL) FROM mailings`)
}

// During a database outage no try is counted, not even the last one.
func TestProcessor_Outage(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"LockMailing", "CountLane", "NextEntries", "Expand"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			id, ids := b.mailing(t, many(3)...)
			p := b.params()
			p.Store = &steppedStore{Store: b.Store, before: func(step string) error {
				if step == at {
					return fmt.Errorf("ask: %w", store.ErrUnavailable)
				}
				return nil
			}}
			task := taskOf(id, 1)
			task.LastTry = true
			wantUncounted(t, handle(t.Context(), p, task))
			b.want(t, "0", `SELECT count(*)::text FROM dead_letters`)
			if err := handle(t.Context(), b.params(), task); err != nil {
				t.Fatal(err)
			}
			b.expandedOnce(t, id, len(ids))
		})
	}
}
