// Package access authenticates callers and limits their rates: it caches API keys with their
// companies and keeps a token bucket per key. The middlewares of httpapi/middleware use it before
// anything of a request is read.
package access

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"time"

	"email-gateway/api/internal/apikey"
	"email-gateway/shared/store/tenant"
)

// ErrUnknownKey: malformed, unknown, revoked, or with a wrong secret. The response does not say
// which.
var ErrUnknownKey = errors.New("unknown API key")

// Errors that reveal nothing about which keys exist: they depend on the request's form only, or
// are returned only with the correct secret. All wrap ErrUnknownKey.
var (
	ErrNoKey        = fmt.Errorf("%w: none was sent", ErrUnknownKey)
	ErrExpiredKey   = fmt.Errorf("%w: it has expired", ErrUnknownKey)
	ErrMalformedKey = fmt.Errorf("%w: not of the form of a key", ErrUnknownKey)
)

// Finder looks up keys; see *store.Store.
type Finder interface {
	// FindCallers returns those of the keys that exist, by id.
	FindCallers(ctx context.Context, keyIDs []string) (map[string]*tenant.Caller, error)
}

const (
	// keep is how long a result of the database is cached: a revoked key or a suspended company
	// may be accepted for this long.
	keep = 5 * time.Second
	// cached limits the number of cached keys, and separately of ids that do not exist, so that
	// guessed ids do not evict existing ones.
	cached = 10_000
	// findTimeout limits a lookup, which requests share, and how long a request waits for it. A lookup may take longer: the
	// driver does not notice the end of a context while it reads from a server that has stopped answering.
	findTimeout = 5 * time.Second
	// lookUpsAtOnce limits the connections used by lookups. Ids that arrive meanwhile share the
	// next lookup: a flood of invented keys makes lookups larger, and a valid key waits for at
	// most two of them.
	lookUpsAtOnce = 2
)

// Directory looks up keys and caches them for a few seconds.
type Directory struct {
	finder  Finder
	known   *cache[*tenant.Caller]
	unknown *cache[struct{}]
	running chan struct{}

	mu      sync.Mutex
	lookUps map[string]*lookUp // pending lookups by id
	next    *lookUp            // not started yet; nil = none
}

// lookUp is one query for all ids requested before it started.
type lookUp struct {
	ids   []string
	done  chan struct{} // closed when found and err are set
	found map[string]*tenant.Caller
	err   error
}

// NewDirectory returns a Directory that uses finder.
func NewDirectory(finder Finder) *Directory {
	return &Directory{
		finder:  finder,
		known:   newCache[*tenant.Caller](cached, keep),
		unknown: newCache[struct{}](cached, keep),
		running: make(chan struct{}, lookUpsAtOnce),
		lookUps: make(map[string]*lookUp),
	}
}

// Authenticate returns the owner of the key. It checks neither whether the company is suspended
// nor the scopes: the caller must. Errors: ErrUnknownKey, which ErrNoKey, ErrMalformedKey and
// ErrExpiredKey wrap, and those of the database.
func (d *Directory) Authenticate(ctx context.Context, text string) (*tenant.Caller, error) {
	if text == "" {
		return nil, ErrNoKey
	}
	key, err := apikey.Parse(text)
	if err != nil {
		return nil, ErrMalformedKey
	}
	caller, err := d.find(ctx, key.ID)
	if err != nil {
		return nil, err
	}
	// Compare also if the id does not exist, with a hash that no secret has, so that timing
	// does not reveal which ids exist.
	stored := make([]byte, 32)
	if caller != nil {
		stored = caller.SecretSHA256
	}
	fits := subtle.ConstantTimeCompare(key.SecretSHA256(), stored) == 1
	if !fits || caller == nil || caller.Revoked(caller.Now()) || caller.Environment != key.Environment {
		return nil, ErrUnknownKey
	}
	if caller.Expired(caller.Now()) { // checked at each call, since the cache may be older
		return nil, ErrExpiredKey
	}
	return caller, nil
}

// Recheck returns what the database now says of a caller whose key was accepted earlier: work that
// takes longer than keep must not end with a key that is no longer valid. Errors: ErrUnknownKey,
// which ErrExpiredKey wraps, and those of the database.
func (d *Directory) Recheck(ctx context.Context, caller *tenant.Caller) (*tenant.Caller, error) {
	found, err := d.find(ctx, caller.KeyID)
	switch {
	case err != nil:
		return nil, err
	case found == nil || found.Revoked(found.Now()):
		return nil, ErrUnknownKey
	case found.Expired(found.Now()):
		return nil, ErrExpiredKey
	}
	return found, nil
}

// find returns nil if there is no such key.
func (d *Directory) find(ctx context.Context, id string) (*tenant.Caller, error) {
	if caller, ok := d.known.get(id); ok {
		return caller, nil
	}
	if _, ok := d.unknown.get(id); ok {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	l := d.join(id)
	select {
	case <-l.done:
		return l.found[id], l.err
	case <-ctx.Done():
		return nil, fmt.Errorf("look up an API key: %w", ctx.Err())
	}
}

// join adds the id to the next lookup, unless one for it is pending.
func (d *Directory) join(id string) *lookUp {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.lookUps[id]; l != nil {
		return l
	}
	if d.next == nil {
		d.next = &lookUp{done: make(chan struct{})}
		go d.run(d.next)
	}
	d.next.ids = append(d.next.ids, id)
	d.lookUps[id] = d.next
	return d.next
}

// run waits for one of lookUpsAtOnce slots and looks up the ids.
func (d *Directory) run(l *lookUp) {
	d.running <- struct{}{}
	defer func() { <-d.running }()
	d.mu.Lock()
	d.next = nil // later ids start another lookup
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), findTimeout)
	defer cancel()
	if l.found, l.err = d.finder.FindCallers(ctx, l.ids); l.err == nil {
		d.remember(l)
	}
	d.mu.Lock()
	for _, id := range l.ids {
		delete(d.lookUps, id)
	}
	d.mu.Unlock()
	close(l.done)
}

// remember caches the results before the lookup ends.
func (d *Directory) remember(l *lookUp) {
	for _, id := range l.ids {
		if caller, ok := l.found[id]; ok {
			d.known.put(id, caller)
		} else {
			d.unknown.put(id, struct{}{})
		}
	}
}
