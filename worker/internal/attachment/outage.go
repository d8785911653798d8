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

// outage detects outages of the storage. One file that cannot be read is none: access to it may be denied, or its key may be
// missing, and its email would postpone the emails of all companies each time it comes back. A missing key is none however many
// files need it: after an old key was removed, the files of newer keys can be read.
type outage struct {
	mu      sync.Mutex
	suspect uuid.UUID // the file whose read failed since the last success; zero = none
	failed  time.Time // the last failure in an outage; zero = the storage works
	trying  bool      // an email tries whether the storage works again
}

// begin reports whether the storage may be used now: in an outage only one email at a time tries it. end records the result;
// file is the one that could not be read.
func (o *outage) begin() (end func(ctx context.Context, file uuid.UUID, err error), may bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	probe := !o.failed.IsZero()
	if probe && (o.trying || time.Since(o.failed) < restTime) {
		return nil, false
	}
	o.trying = o.trying || probe
	return func(ctx context.Context, file uuid.UUID, err error) { o.end(ctx, probe, file, err) }, true
}

func (o *outage) end(ctx context.Context, probe bool, file uuid.UUID, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if probe {
		o.trying = false
	}
	switch {
	case ctx.Err() != nil: // the worker is stopping
	case !errors.Is(err, ErrUnavailable), errors.Is(err, keyring.ErrNoKey): // the storage has answered
		o.suspect = uuid.Nil
		if probe {
			o.failed = time.Time{}
		}
	case probe, o.suspect != uuid.Nil && o.suspect != file:
		o.failed = time.Now()
	default:
		o.suspect = file
	}
}
