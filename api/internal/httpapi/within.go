package httpapi

import "context"

// within asks and waits for the answer until ctx ends, and not a moment longer: a
// driver that reads from a server which has stopped answering does not look at ctx.
// The question itself ends by the store's own limits.
func within[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
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
