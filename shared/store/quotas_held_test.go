package store_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/storetest"
)

// holdQuotas locks the quotas of companies, as programs do that keep their transactions open, until release is called.
func holdQuotas(t *testing.T, d storetest.Database, companies ...uuid.UUID) (release func()) {
	t.Helper()
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	must(t, err)
	release = sync.OnceFunc(func() { _ = tx.Rollback() })
	t.Cleanup(release)
	for _, company := range companies {
		if _, err := tx.ExecContext(t.Context(), `SELECT email_gateway_hold_quotas($1)`, company); err != nil {
			t.Fatal(err)
		}
	}
	return release
}

// Companies whose quotas are held, and that send much, do not delay another company that is close to a quota. No company
// exceeds its quota meanwhile or afterwards.
func TestQuota_HeldLocksOfOthers(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	held, other := []uuid.UUID{d.Company(t), d.Company(t), d.Company(t)}, d.Company(t)
	const emails = 20
	for _, company := range held {
		limit(t, d, company, quota.EmailsPerDay, 3)
	}
	limit(t, d, other, quota.EmailsPerDay, 2*emails)
	a := d.Store.NewAccepter()
	defer a.Close()
	send := func() {
		for range emails {
			must(t, a.Accept(t.Context(), storetest.NewEmail(other, nil)))
		}
	}
	send()

	release := holdQuotas(t, d, held...)
	busy := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var senders sync.WaitGroup
	for _, company := range held {
		for range 20 {
			senders.Go(func() {
				for ctx.Err() == nil {
					if err := a.Accept(context.WithoutCancel(ctx), storetest.NewEmail(company, nil)); !errors.Is(err, store.ErrBusy) {
						t.Errorf("while the lock is held: %v", err)
					}
					select {
					case busy <- struct{}{}:
					case <-time.After(10 * time.Millisecond):
					}
				}
			})
		}
	}
	<-busy
	send()
	stop()
	senders.Wait()
	refused(t, a.Accept(t.Context(), storetest.NewEmail(other, nil)), quota.EmailsPerDay, 2*emails, 2*emails)

	release()
	var accepted atomic.Int64
	for _, company := range held {
		for range 10 {
			senders.Go(func() {
				var over *quota.Error
				err := store.ErrBusy
				for errors.Is(err, store.ErrBusy) { // on a busy machine an email may wait too long for the ones before it
					err = a.Accept(t.Context(), storetest.NewEmail(company, nil))
				}
				switch {
				case err == nil:
					accepted.Add(1)
				case !errors.As(err, &over):
					t.Errorf("after the lock: %v", err)
				}
			})
		}
	}
	senders.Wait()
	if accepted.Load() != int64(3*len(held)) {
		t.Errorf("%d emails are accepted after the lock, want 3 of each company", accepted.Load())
	}
}
