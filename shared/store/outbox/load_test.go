package outbox_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"weak"

	"github.com/google/uuid"

	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/storetest"
)

// An email that is in use keeps none of the others of its group in memory.
func TestLoader_EmailsAreIndependent(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, db := d.Company(t), d.Store.DB()
	group, err := outbox.LoadGroup(t.Context(), outbox.New(db, idempotency.New(db), quota.New(db)), d.Accept(t, company, nil), d.Accept(t, company, nil))
	if err != nil {
		t.Fatal(err)
	}
	used, other := group[0], weak.Make(group[1])
	clear(group)
	runtime.GC()
	if other.Value() != nil {
		t.Error("the other email is still in memory")
	}
	runtime.KeepAlive(used)
}

// However many emails are loaded at once, a statement reads at most 64.
func TestLoader_GroupSize(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, db := d.Company(t), d.Store.DB()
	var most, all atomic.Int64
	loader := outbox.NewCountingLoader(outbox.New(db, idempotency.New(db), quota.New(db)), func(emails int) {
		all.Add(int64(emails))
		for n := most.Load(); int64(emails) > n && !most.CompareAndSwap(n, int64(emails)); n = most.Load() {
		}
	})
	defer loader.Close()
	loader.For(512)
	id := d.Accept(t, company, nil)
	var loading sync.WaitGroup
	for range 1000 {
		loading.Go(func() { _, _ = loader.Load(t.Context(), uuid.New()) })
	}
	loading.Wait()
	if _, err := loader.Load(t.Context(), id); err != nil {
		t.Error(err)
	}
	if most.Load() > 64 || all.Load() != 1001 {
		t.Errorf("%d emails in groups of at most %d", all.Load(), most.Load())
	}
}
