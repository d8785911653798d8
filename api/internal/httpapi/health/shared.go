package health

import (
	"context"

	"golang.org/x/sync/singleflight"
)

// shared merges concurrent calls into one: /health and /readyz need no key, and each request
// would otherwise use a connection. The call continues if a caller disconnects, and ends after
// timeout.
func shared[R any](ask func(context.Context) (R, error)) func(context.Context) (R, error) {
	var asking singleflight.Group
	return func(ctx context.Context) (R, error) {
		answer, err, _ := asking.Do("", func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
			defer cancel()
			return ask(ctx)
		})
		value, _ := answer.(R)
		return value, err
	}
}
