package reqbody

import (
	"context"
)

// ExtraMemory is the memory that a request uses besides its body.
type ExtraMemory struct {
	memory  *Memory
	account inbound
}

// Reserve waits for n bytes. keep releases the part that is not needed; the rest is released when the request ends.
func (e *ExtraMemory) Reserve(ctx context.Context, n int64) (keep func(needed int64), err error) {
	if e == nil {
		return func(int64) {}, nil
	}
	if e.account.owner == nil {
		e.memory.join(&e.account)
	}
	if err := e.memory.load(ctx, &e.account, n); err != nil {
		return nil, err
	}
	return func(needed int64) { e.memory.unreserve(&e.account, max(n-needed, 0)) }, nil
}

func (e *ExtraMemory) release() {
	if e.account.owner != nil {
		e.memory.release(&e.account)
		e.account.owner = nil
	}
}

type extraMemoryKey struct{}

// ExtraMemoryOf returns the extra memory of a request's context, nil if it has none.
func ExtraMemoryOf(ctx context.Context) *ExtraMemory {
	e, _ := ctx.Value(extraMemoryKey{}).(*ExtraMemory)
	return e
}
