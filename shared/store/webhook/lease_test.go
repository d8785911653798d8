package webhook_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/webhook"
)

// Of concurrent Take calls for one endpoint exactly one succeeds, and the others do not wait.
func TestTake_OneOfMany(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	company := d.Company(t)
	id := newEndpoint(t, s, company)
	var taken atomic.Int32
	var taking sync.WaitGroup
	for range 16 {
		taking.Go(func() {
			err := sender.Take(t.Context(), webhook.Lease{EndpointID: id, Token: uuid.New()}, time.Minute)
			switch {
			case err == nil:
				taken.Add(1)
			case !errors.Is(err, webhook.ErrLeaseLost):
				t.Error(err)
			}
		})
	}
	taking.Wait()
	if taken.Load() != 1 {
		t.Errorf("%d processes have the lease", taken.Load())
	}
}

// A lease and a failure of a server whose clock was ahead do not delay an endpoint until this server's clock reaches them.
func TestTake_AfterClockWasAhead(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	id := newEndpoint(t, s, d.Company(t))
	take(t, sender, id)
	lists := func(want int) {
		t.Helper()
		if due, err := sender.Due(t.Context(), time.Minute, 10); err != nil || len(due) != want {
			t.Errorf("due: %v, %v", due, err)
		}
	}
	d.Run(t, `UPDATE webhook_endpoints SET due_at = now() + interval '1 h', failures = $1, failing_since = now(), last_failure_at = now() + interval '1 h'`, webhook.DownFailures)
	lists(0) // the lease is current
	d.Run(t, `UPDATE webhook_endpoints SET lease_until = now() + interval '1 h'`)
	lists(1)
	take(t, sender, id)
	lists(0)
}

// An endpoint that another transaction has locked is skipped without waiting.
func TestTake_LockedRow(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	company := d.Company(t)
	id := newEndpoint(t, s, company)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0; SELECT FROM webhook_endpoints FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if err := sender.Take(t.Context(), webhook.Lease{EndpointID: id, Token: uuid.New()}, time.Minute); !errors.Is(err, webhook.ErrLeaseLost) {
		t.Errorf("%v", err)
	}
}

// A process whose lease has ended, was taken over, or whose endpoint was disabled or deleted, can write
// nothing, also if it was frozen right before its commit.
func TestRecord_LeaseLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, run func(string, ...any), s *webhook.Store, sender *webhook.SenderStore, e webhook.Endpoint){
		"ended": func(_ *testing.T, run func(string, ...any), _ *webhook.Store, _ *webhook.SenderStore, e webhook.Endpoint) {
			run(`UPDATE webhook_endpoints SET lease_until = now() WHERE id = $1`, e.ID)
		},
		"taken over": func(t *testing.T, run func(string, ...any), _ *webhook.Store, sender *webhook.SenderStore, e webhook.Endpoint) {
			run(`UPDATE webhook_endpoints SET lease_until = now() - interval '1 s' WHERE id = $1`, e.ID)
			take(t, sender, e.ID)
		},
		"disabled": func(t *testing.T, _ func(string, ...any), s *webhook.Store, _ *webhook.SenderStore, e webhook.Endpoint) {
			if _, err := s.Disable(t.Context(), e.CompanyID, e.ID); err != nil {
				t.Fatal(err)
			}
		},
		"deleted": func(t *testing.T, _ func(string, ...any), s *webhook.Store, _ *webhook.SenderStore, e webhook.Endpoint) {
			if err := s.Delete(t.Context(), e.CompanyID, e.ID); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, s, sender := newStore(t)
			company := d.Company(t)
			id := newEndpoint(t, s, company)
			l := take(t, sender, id)
			if _, err := sender.Load(t.Context(), l, time.Hour); err != nil {
				t.Fatal(err)
			}
			lose(t, func(statement string, args ...any) { d.Run(t, statement, args...) }, s, sender, find(t, s, company, id))
			_, err := sender.Record(t.Context(), l, webhook.Result{
				New: []webhook.Attempted{failed(uuid.New(), 7)}, Cursor: webhook.Cursor{Position: 7}, Failures: 1, Error: "HTTP_500",
			}, disableAfter)
			if !errors.Is(err, webhook.ErrLeaseLost) {
				t.Errorf("record: %v", err)
			}
			if err := sender.Renew(t.Context(), l, time.Minute); !errors.Is(err, webhook.ErrLeaseLost) {
				t.Errorf("renew: %v", err)
			}
			if _, err := sender.Load(t.Context(), l, time.Hour); !errors.Is(err, webhook.ErrLeaseLost) {
				t.Errorf("load: %v", err)
			}
			if _, err := sender.ReplayFailed(t.Context(), l, webhook.Replay{ID: uuid.New()}, 10); !errors.Is(err, webhook.ErrLeaseLost) {
				t.Errorf("replay: %v", err)
			}
			if err := sender.Release(t.Context(), l); err != nil {
				t.Errorf("release: %v", err)
			}
			if e, err := s.Find(t.Context(), company, id); err == nil && (e.Position == 7 || e.Failures != 0 || e.Open != 0) {
				t.Errorf("written: %+v", e)
			}
		})
	}
}

// While a company is suspended, its endpoints are neither listed nor served, also by a process that has the lease. Afterwards
// they continue at their cursors.
func TestDue_SuspendedCompany(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	company := d.Company(t)
	id := newEndpoint(t, s, company)
	d.Run(t, `UPDATE webhook_endpoints SET due_at = now()`)
	d.Run(t, `INSERT INTO event_feed (company_id, position, email_ids, first_seqs, last_seqs) VALUES ($1, 1000, ARRAY[gen_random_uuid()], '{1}', '{1}')`, company)
	listed := func() (due, behind int) {
		t.Helper()
		dueNow, err := sender.Due(t.Context(), time.Hour, 10)
		if err != nil {
			t.Fatal(err)
		}
		behindNow, err := sender.Behind(t.Context(), time.Hour, 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(dueNow), len(behindNow)
	}
	if due, behind := listed(); due != 1 || behind != 1 {
		t.Fatalf("before: %d due, %d behind", due, behind)
	}
	lease := take(t, sender, id)
	d.Run(t, `UPDATE companies SET suspended_at = now(), suspended_reason = 'abuse' WHERE id = $1`, company)
	if _, err := sender.Load(t.Context(), lease, time.Hour); !errors.Is(err, webhook.ErrLeaseLost) {
		t.Errorf("load: %v", err)
	}
	if err := sender.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if due, behind := listed(); due != 0 || behind != 0 {
		t.Errorf("suspended: %d due, %d behind", due, behind)
	}
	d.Run(t, `UPDATE companies SET suspended_at = NULL, suspended_reason = NULL WHERE id = $1`, company)
	if due, behind := listed(); due != 1 || behind != 1 {
		t.Errorf("resumed: %d due, %d behind", due, behind)
	}
	if r, err := sender.Load(t.Context(), take(t, sender, id), time.Hour); err != nil || r.Position >= 1000 {
		t.Errorf("resumed: %+v, %v", r.Cursor, err)
	}
}
