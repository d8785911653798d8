package httpapi

import (
	"context"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/templates"
	"email-gateway/shared/rules"
)

// renderLimits limit the memory of contents that are made from templates, and of responses with a whole template, until
// their requests end: a small request makes a large content, so the limits of bodies do not hold it. The largest
// content with its data fits into the memory of its company.
var renderLimits = bodyLimits{ownMemory: 8 << 20, allMemory: 24 << 20, wait: 5 * time.Second}

// batchRenderLimits are those of batches. A batch holds its contents until it is committed, at most maxBatchBody, while a
// further item reserves up to 6 MiB (see templates.Use.Memory).
var batchRenderLimits = bodyLimits{ownMemory: maxBatchBody + 6<<20, allMemory: 3 * (maxBatchBody + 6<<20), wait: 5 * time.Second}

// templateRoom is the memory for a response with a template, before its size is known (bytes).
const templateRoom = 4 << 20

// room is memory of a request that its body does not use.
type room struct {
	memory  *bodyMemory
	account inbound
}

// reserve waits for n bytes. keep gives back what is not needed of them; the rest is released with the room.
func (r *room) reserve(ctx context.Context, n int64) (keep func(needed int64), err error) {
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

func (r *room) release() {
	if r.account.owner != nil {
		r.memory.release(&r.account)
		r.account.owner = nil
	}
}

type roomKey struct{}

// roomOf returns the room of a request's context, nil if it has none.
func roomOf(ctx context.Context) *room {
	r, _ := ctx.Value(roomKey{}).(*room)
	return r
}

// withRoom returns a context with a room of the company. release must be called when the request ends.
func (bs *bodies) withRoom(ctx context.Context, company uuid.UUID) (with context.Context, release func()) {
	if bs.rendered == nil {
		return ctx, func() {}
	}
	r := &room{memory: bs.rendered, account: inbound{bodies: bs, company: company}}
	return context.WithValue(ctx, roomKey{}, r), r.release
}

// render renders a template with memory of the room in ctx.
func render(ctx context.Context, l *templates.Library, company uuid.UUID, field string, use templates.Use) (templates.Made, rules.Faults, error) {
	keep, err := roomOf(ctx).reserve(ctx, use.Memory())
	if err != nil {
		return templates.Made{}, nil, err
	}
	made, faults, err := l.Render(ctx, company, field, use)
	keep(made.Memory())
	return made, faults, err
}
