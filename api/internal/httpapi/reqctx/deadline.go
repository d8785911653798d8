package reqctx

import (
	"context"
)

// WithDeadline calls ask and returns when ctx ends at the latest: a driver that reads from a server
// which has stopped answering ignores ctx. The call itself ends by the store's own limits.
func WithDeadline[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := ask(ctx)
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
