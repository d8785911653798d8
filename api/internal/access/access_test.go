package access_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/access"
	"email-gateway/api/internal/apikey"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
)

// keys is the database of these tests: a map that records how often it is queried.
type keys struct {
	mu      sync.Mutex
	callers map[string]tenant.Caller
	err     error
	delay   time.Duration
	silent  bool // the delay does not end with the context
	queries atomic.Int64
}

func (k *keys) FindCallers(ctx context.Context, ids []string) (map[string]*tenant.Caller, error) {
	k.queries.Add(1)
	select {
	case <-time.After(k.delay):
	case <-k.ended(ctx):
		return nil, ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return nil, k.err
	}
	found := map[string]*tenant.Caller{}
	for _, id := range ids {
		if caller, ok := k.callers[id]; ok {
			found[id] = &caller
		}
	}
	return found, nil
}

// ended returns ctx's channel, or one that is never closed if the database does not answer.
func (k *keys) ended(ctx context.Context) <-chan struct{} {
	if k.silent {
		return nil
	}
	return ctx.Done()
}

func (k *keys) change(id string, change func(*tenant.Caller)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	caller := k.callers[id]
	change(&caller)
	k.callers[id] = caller
}

func newKeys(t *testing.T) (*keys, apikey.Key) {
	t.Helper()
	key, err := apikey.New("dev")
	if err != nil {
		t.Fatal(err)
	}
	return &keys{callers: map[string]tenant.Caller{key.ID: {APIKey: tenant.APIKey{
		KeyID: key.ID, CompanyID: uuid.New(), Environment: "dev", SecretSHA256: key.SecretSHA256(),
	}}}}, key
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	finder, key := newKeys(t)
	d := access.NewDirectory(finder)
	caller, err := d.Authenticate(t.Context(), key.String())
	if err != nil || caller.KeyID != key.ID {
		t.Fatalf("%+v, %v", caller, err)
	}
	stranger, err := apikey.New("dev")
	if err != nil {
		t.Fatal(err)
	}
	for name, wrong := range map[string]apikey.Key{
		"unknown":           stranger,
		"another secret":    {Environment: "dev", ID: key.ID, Secret: stranger.Secret},
		"part of it":        {Environment: "dev", ID: key.ID, Secret: key.Secret[:20]},
		"other environment": {Environment: "production", ID: key.ID, Secret: key.Secret},
		"nothing":           {},
	} {
		if _, err := d.Authenticate(t.Context(), wrong.String()); !errors.Is(err, access.ErrUnknownKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAuthenticate_CachesForFiveSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		finder, key := newKeys(t)
		d := access.NewDirectory(finder)
		for range 3 {
			if _, err := d.Authenticate(t.Context(), key.String()); err != nil {
				t.Fatal(err)
			}
		}
		if n := finder.queries.Load(); n != 1 {
			t.Errorf("%d database queries, want 1", n)
		}
		finder.change(key.ID, func(c *tenant.Caller) { c.RevokedAt = new(time.Time) })
		<-time.After(5*time.Second + time.Millisecond)
		if _, err := d.Authenticate(t.Context(), key.String()); !errors.Is(err, access.ErrUnknownKey) {
			t.Errorf("a revoked key still works: %v", err)
		}
	})
}

// behind is a finder on a host whose clock is ten minutes behind Postgres's.
type behind struct{ access.Finder }

func (b behind) FindCallers(ctx context.Context, ids []string) (map[string]*tenant.Caller, error) {
	found, err := b.Finder.FindCallers(ctx, ids)
	for _, c := range found {
		c.ReadAt = c.ReadAt.Add(10 * time.Minute)
	}
	return found, err
}

// Whether a key has been revoked or has expired is decided by Postgres's clock.
func TestAuthenticate_ClockOfHostIsBehind(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for name, c := range map[string]struct {
		ends func(*tenant.APIKey, time.Time)
		left time.Duration
		want error
	}{
		"valid":   {func(*tenant.APIKey, time.Time) {}, 0, nil},
		"expires": {func(k *tenant.APIKey, at time.Time) { k.ExpiresAt = &at }, time.Minute, nil},
		"expired": {func(k *tenant.APIKey, at time.Time) { k.ExpiresAt = &at }, -time.Second, access.ErrExpiredKey},
	} {
		key, err := apikey.New("dev")
		if err != nil {
			t.Fatal(err)
		}
		stored := tenant.APIKey{KeyID: key.ID, CompanyID: company, Name: name, Environment: "dev", SecretSHA256: key.SecretSHA256(), Scopes: []string{"emails:send"}}
		c.ends(&stored, time.Now().Add(10*time.Minute+c.left))
		if _, err := d.Store.CreateAPIKey(t.Context(), storetest.Operator(), stored); err != nil {
			t.Fatal(err)
		}
		caller, err := access.NewDirectory(behind{d.Store}).Authenticate(t.Context(), key.String())
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		d.Run(t, `UPDATE api_keys SET revoked_at = now() + interval '10 min' WHERE key_id = $1`, key.ID)
		fresh := access.NewDirectory(behind{d.Store})
		if _, err := fresh.Authenticate(t.Context(), key.String()); !errors.Is(err, access.ErrUnknownKey) {
			t.Errorf("%s, revoked: %v", name, err)
		}
		if _, err := fresh.Recheck(t.Context(), caller); !errors.Is(err, access.ErrUnknownKey) {
			t.Errorf("%s, revoked and checked again: %v", name, err)
		}
	}
}

func TestAuthenticate_OneQueryForConcurrentRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		finder, key := newKeys(t)
		finder.delay = time.Second
		d := access.NewDirectory(finder)
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i == 0 {
					go func() { <-time.After(time.Millisecond); cancel() }() // one client disconnects
				}
				if _, err := d.Authenticate(ctx, key.String()); err != nil && i > 0 {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := finder.queries.Load(); n != 1 {
			t.Errorf("%d database queries, want 1", n)
		}
	})
}

// A request does not wait for a database that has stopped answering, nor after its client has disconnected.
func TestAuthenticate_SilentDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		finder, key := newKeys(t)
		finder.delay, finder.silent = time.Minute, true
		d := access.NewDirectory(finder)
		for timeout, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Hour: 5 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			start := time.Now()
			_, err := d.Authenticate(ctx, key.String())
			if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != want {
				t.Errorf("limit %v: %v after %v", timeout, err, took)
			}
			cancel()
		}
		<-time.After(finder.delay) // the lookup ends
	})
}

func TestAuthenticate_DatabaseDown(t *testing.T) {
	t.Parallel()
	finder, key := newKeys(t)
	finder.err = store.ErrUnavailable
	d := access.NewDirectory(finder)
	if _, err := d.Authenticate(t.Context(), key.String()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	finder.err = nil
	if _, err := d.Authenticate(t.Context(), key.String()); err != nil {
		t.Errorf("the database error was cached: %v", err)
	}
}

func TestAuthenticate_GuessedKeysEvictNoValidKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		finder, key := newKeys(t)
		d := access.NewDirectory(finder)
		if _, err := d.Authenticate(t.Context(), key.String()); err != nil {
			t.Fatal(err)
		}
		for i := range 12_000 {
			if _, err := d.Authenticate(t.Context(), fmt.Sprintf("gw_dev_guess%d_secret", i)); !errors.Is(err, access.ErrUnknownKey) {
				t.Fatal(err)
			}
		}
		before := finder.queries.Load()
		if _, err := d.Authenticate(t.Context(), key.String()); err != nil || finder.queries.Load() != before {
			t.Errorf("a cached key was looked up again (%v)", err)
		}
	})
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := access.NewLimiter()
		for left := 3; left >= 0; left-- {
			q := l.Take("k", 2, 4)
			if !q.Allowed || q.Limit != 4 || q.Remaining != left {
				t.Errorf("with %d requests left: %+v", left, q)
			}
		}
		q := l.Take("k", 2, 4)
		if q.Allowed || q.RetryAfter != 500*time.Millisecond || q.Reset != 2*time.Second {
			t.Errorf("beyond the burst: %+v", q)
		}
		if q := l.Take("other", 2, 4); !q.Allowed {
			t.Error("a request with one key counts against the limit of another")
		}
		<-time.After(500 * time.Millisecond)
		if q := l.Take("k", 2, 4); !q.Allowed {
			t.Errorf("half a second later: %+v", q)
		}
		if q := l.Take("k", 1000, 4); q.Allowed {
			t.Errorf("a changed rate refills the bucket immediately: %+v", q)
		}
	})
}

func TestLimiter_Off(t *testing.T) {
	t.Parallel()
	l := access.NewLimiter()
	for range 10_000 {
		if q := l.Take("k", 0, 0); !q.Allowed || q.Limit != 0 {
			t.Fatalf("%+v", q)
		}
	}
}

func TestLimiter_KeepsTheBusyOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := access.NewLimiter()
		for range 4 {
			l.Take("busy", 1, 4)
		}
		for i := range 25_000 {
			l.Take(fmt.Sprint(i), 1, 4)
		}
		if q := l.Take("busy", 1, 4); q.Allowed {
			t.Errorf("the bucket of a busy key was evicted: %+v", q)
		}
	})
}

// Invented ids share two lookups at a time, so that they do not delay the first lookup of a valid key.
func TestAuthenticate_InventedIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, key := newKeys(t)
		k.delay = time.Second
		d := access.NewDirectory(k)
		var all sync.WaitGroup
		invent := func(prefix string) {
			for i := range 1000 {
				all.Go(func() {
					if _, err := d.Authenticate(t.Context(), fmt.Sprintf("gw_dev_%s%d_secret", prefix, i)); !errors.Is(err, access.ErrUnknownKey) {
						t.Errorf("an invented key: %v", err)
					}
				})
			}
		}
		invent("early")
		synctest.Wait()
		if n := k.queries.Load(); n != 2 {
			t.Errorf("%d lookups at once, want 2", n)
		}
		start := time.Now()
		all.Go(func() {
			if _, err := d.Authenticate(t.Context(), key.String()); err != nil || time.Since(start) > 2*time.Second {
				t.Errorf("a valid key: %v after %s", err, time.Since(start))
			}
		})
		invent("late")
		all.Wait()
		if n := k.queries.Load(); n > 4 {
			t.Errorf("%d lookups for 2001 invented ids, want at most 4", n)
		}
	})
}
