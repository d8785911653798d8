// Package access decides who is calling and how often they may: the keys with their
// companies, and a token bucket per key. The middlewares of package httpapi ask it
// before anything of a request is read.
package access

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"time"

	"email-gateway/api/internal/apikey"
	"email-gateway/shared/store"
)

// ErrUnknownKey: not a key, unknown, revoked, or the secret does not fit. The caller
// is not told which.
var ErrUnknownKey = errors.New("unknown API key")

// What can be said of a refusal without a look at the keys that there are, as the form of a
// key is public, or to whoever has the secret. All are an ErrUnknownKey.
var (
	ErrNoKey        = fmt.Errorf("%w: none was sent", ErrUnknownKey)
	ErrExpiredKey   = fmt.Errorf("%w: it has expired", ErrUnknownKey)
	ErrMalformedKey = fmt.Errorf("%w: not of the form of a key", ErrUnknownKey)
)

// Finder looks keys up. *store.Store is one.
type Finder interface {
	// FindCallers returns those of the keys that exist, by id.
	FindCallers(ctx context.Context, keyIDs []string) (map[string]*store.Caller, error)
}

const (
	// keep is how long an answer of the database is believed: a revoked key or a
	// suspended company may go on for as long.
	keep = 5 * time.Second
	// cached bounds the memory for keys, and separately for ids that are no keys, so
	// that guessing does not push the known ones out.
	cached = 10_000
	// findTimeout is not the request's: other requests wait for the same answer.
	findTimeout = 5 * time.Second
	// lookUpsAtOnce bounds the connections that look-ups use. Ids that arrive while all are in
	// use share the next one: a flood of invented keys makes look-ups larger, and a valid key
	// waits for at most two of them.
	lookUpsAtOnce = 2
)

// Directory knows the keys, for a few seconds at a time.
type Directory struct {
	finder  Finder
	known   *cache[*store.Caller]
	unknown *cache[struct{}]
	running chan struct{}

	mu      sync.Mutex
	lookUps map[string]*lookUp // by the ids that are being looked up
	next    *lookUp            // has not begun; nil = none
}

// lookUp is one query for all ids that were asked for while it waited to begin.
type lookUp struct {
	ids   []string
	done  chan struct{} // closed when found and err are set
	found map[string]*store.Caller
	err   error
}

// NewDirectory makes a Directory in front of finder.
func NewDirectory(finder Finder) *Directory {
	return &Directory{
		finder:  finder,
		known:   newCache[*store.Caller](cached, keep),
		unknown: newCache[struct{}](cached, keep),
		running: make(chan struct{}, lookUpsAtOnce),
		lookUps: make(map[string]*lookUp),
	}
}

// Authenticate returns whom the key belongs to. The caller's company may be
// suspended and its scopes may not suffice: that is for the caller of Authenticate
// to see. Errors: ErrUnknownKey, of which ErrNoKey and ErrMalformedKey are two, and those of the
// database.
func (d *Directory) Authenticate(ctx context.Context, text string) (*store.Caller, error) {
	if text == "" {
		return nil, ErrNoKey
	}
	key, err := apikey.Parse(text)
	if err != nil {
		return nil, ErrMalformedKey
	}
	caller, err := d.find(key.ID)
	if err != nil {
		return nil, err
	}
	// An id that does not exist is compared too, with a hash that nothing has: how
	// long the refusal takes does not tell which ids exist.
	stored := make([]byte, 32)
	if caller != nil {
		stored = caller.SecretSHA256
	}
	fits := subtle.ConstantTimeCompare(key.SecretSHA256(), stored) == 1
	if !fits || caller == nil || caller.Revoked(time.Now()) || caller.Environment != key.Environment {
		return nil, ErrUnknownKey
	}
	if caller.Expired(time.Now()) { // by the clock, not by the cache
		return nil, ErrExpiredKey
	}
	return caller, nil
}

// find returns nil when there is no such key.
func (d *Directory) find(id string) (*store.Caller, error) {
	if caller, ok := d.known.get(id); ok {
		return caller, nil
	}
	if _, ok := d.unknown.get(id); ok {
		return nil, nil
	}
	l := d.join(id)
	<-l.done
	return l.found[id], l.err
}

// join adds the id to the look-up that begins next, unless one has it already.
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

// run waits until fewer than lookUpsAtOnce are running and looks the ids up.
func (d *Directory) run(l *lookUp) {
	d.running <- struct{}{}
	defer func() { <-d.running }()
	d.mu.Lock()
	d.next = nil // later ids need another
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

// remember keeps the answers, so that they are found from before the look-up ends.
func (d *Directory) remember(l *lookUp) {
	for _, id := range l.ids {
		if caller, ok := l.found[id]; ok {
			d.known.put(id, caller)
		} else {
			d.unknown.put(id, struct{}{})
		}
	}
}
