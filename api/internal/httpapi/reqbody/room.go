package reqbody

import (
	"context"
)

// Room is memory of a request that its body does not use.
type Room struct {
	memory  *Memory
	account inbound
}

// Reserve waits for n bytes. keep releases the part that is not needed; the rest is released with the room.
func (r *Room) Reserve(ctx context.Context, n int64) (keep func(needed int64), err error) {
	if r == nil {
		return func(int64) {}, nil
	}
	if r.account.owner == nil {
		r.memory.join(&r.account)
	}
	if err := r.memory.load(ctx, &r.account, n); err != nil {
		return nil, err
	}
	return func(needed int64) { r.memory.giveBack(&r.account, max(n-needed, 0)) }, nil
}

func (r *Room) release() {
	if r.account.owner != nil {
		r.memory.release(&r.account)
		r.account.owner = nil
	}
}

type roomKey struct{}

// RoomOf returns the room of a request's context, nil if it has none.
func RoomOf(ctx context.Context) *Room {
	r, _ := ctx.Value(roomKey{}).(*Room)
	return r
}
