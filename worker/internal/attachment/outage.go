package attachment

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/keyring"
)

// restTime is how long the storage is left alone after an outage was detected, except for one email at a time.
const restTime = 5 * time.Second

// Emails that wait for the storage are tried again after as long as the outage has lasted, within these limits. With a
// fixed delay, a long outage with many waiting emails would load the database and the queue for nothing.
const (
	minOutageDelay = 10 * time.Second
	maxOutageDelay = 2 * time.Minute
)

// outage detects outages of the storage. One file that cannot be read is none: access to it may be denied, or its key may be
// missing, and its email would postpone the emails of all companies each time it comes back. A missing key is none however many
// files need it: after an old key was removed, the files of newer keys can be read.
type outage struct {
	mu      sync.Mutex
	suspect uuid.UUID // the file whose read failed since the last success; zero = none
	began   time.Time // the first failure in an outage
	failed  time.Time // the last failure in an outage; zero = the storage works
	trying  bool      // an email tries whether the storage works again
}

// begin starts a use of the storage: in an outage only one email at a time tries it. end records the result; file is the one that
// could not be read. For the other emails end is nil, and delay is when they should be tried again.
func (o *outage) begin() (end func(ctx context.Context, file uuid.UUID, err error), delay time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	probe := !o.failed.IsZero()
	if probe && (o.trying || time.Since(o.failed) < restTime) {
		return nil, min(max(time.Since(o.began), minOutageDelay), maxOutageDelay)
	}
	o.trying = o.trying || probe
	return func(ctx context.Context, file uuid.UUID, err error) { o.end(ctx, probe, file, err) }, 0
}

func (o *outage) end(ctx context.Context, probe bool, file uuid.UUID, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if probe {
		o.trying = false
	}
	switch {
	case ctx.Err() != nil: // the worker is stopping
	case !errors.Is(err, ErrUnavailable), errors.Is(err, keyring.ErrNoKey), errors.Is(err, errSlow): // the storage has answered
		o.suspect = uuid.Nil
		if probe {
			o.failed = time.Time{}
		}
	case probe, o.suspect != uuid.Nil && o.suspect != file:
		if o.failed.IsZero() {
			o.began = time.Now()
		}
		o.failed = time.Now()
	default:
		o.suspect = file
	}
}
