// Package access decides who is calling and how often they may: the keys with their
// companies, and a token bucket per key. The middlewares of package httpapi ask it
// before anything of a request is read.
package access

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"

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
	// FindCaller returns store.ErrNotFound if there is no such key.
	FindCaller(ctx context.Context, keyID string) (store.Caller, error)
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
	// strangers bounds the look-ups at once of ids that have never been found: whoever makes
	// ids up takes no more connections. A key that was found is not among them for a day.
	strangers = 2
	keepFound = 24 * time.Hour
)

// ErrCrowded: too many unknown keys are being looked up.
var ErrCrowded = errors.New("too many unknown API keys at once")

// Directory knows the keys, for a few seconds at a time.
type Directory struct {
	finder    Finder
	asking    singleflight.Group
	known     *cache[*store.Caller]
	unknown   *cache[struct{}]
	found     *cache[struct{}] // ids of keys that there were
	strangers chan struct{}
}

// NewDirectory makes a Directory in front of finder.
func NewDirectory(finder Finder) *Directory {
	return &Directory{
		finder:    finder,
		known:     newCache[*store.Caller](cached, keep),
		unknown:   newCache[struct{}](cached, keep),
		found:     newCache[struct{}](cached, keepFound),
		strangers: make(chan struct{}, strangers),
	}
}

// Authenticate returns whom the key belongs to. The caller's company may be
// suspended and its scopes may not suffice: that is for the caller of Authenticate
// to see. Errors: ErrUnknownKey, of which ErrNoKey and ErrMalformedKey are two, ErrCrowded, and
// those of the database.
func (d *Directory) Authenticate(ctx context.Context, text string) (*store.Caller, error) {
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
func (d *Directory) find(ctx context.Context, id string) (*store.Caller, error) {
	if caller, ok := d.known.get(id); ok {
		return caller, nil
	}
	if _, ok := d.unknown.get(id); ok {
		return nil, nil
	}
	found, err, _ := d.asking.Do(id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findTimeout)
		defer cancel()
		if _, was := d.found.get(id); !was {
			select {
			case d.strangers <- struct{}{}:
				defer func() { <-d.strangers }()
			case <-ctx.Done():
				return nil, ErrCrowded
			}
		}
		caller, err := d.finder.FindCaller(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			d.unknown.put(id, struct{}{})
			return (*store.Caller)(nil), nil
		case err != nil:
			return nil, err
		}
		d.known.put(id, &caller)
		d.found.put(id, struct{}{})
		return &caller, nil
	})
	if err != nil {
		return nil, err
	}
	caller, _ := found.(*store.Caller)
	return caller, nil
}
