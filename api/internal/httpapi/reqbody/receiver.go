// Package reqbody receives the bodies of requests: JSON, JSON with attachments, files and forms. It
// limits the memory and the disk space of each company, the size of a body, and how slow its client may be.
package reqbody

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/spool"
)

// ReceiveTime returns how long receiving a body of the given size may take.
func ReceiveTime(size int64) time.Duration { return bodyTime * time.Duration(size/MaxBody+1) }

// Receiver receives request bodies: memory is accounted to the company as bytes arrive. Bodies
// above memoryBody, or without memory, go to disk.
type Receiver struct {
	Memory   *Memory
	Rendered *Memory    // of contents that requests make; nil = they make none
	Spool    *spool.Dir // nil = no disk
	Pace     Pace
	Most     int64         // bytes of one body
	Time     time.Duration // limits receiving one; 0 = bodyTime
	TooLarge problem.Problem
}

const inboundKey = "inboundBody"

// inboundOf returns the body of a request that Limit handles.
func inboundOf(c *gin.Context) *inbound {
	b, _ := c.MustGet(inboundKey).(*inbound)
	return b
}

// Limit runs before a handler that reads a body with Read. It rejects a body whose
// Content-Length is too large, and releases the memory of the body, and of what is rendered, after the handler.
func (r *Receiver) Limit(c *gin.Context) error {
	if c.Request.ContentLength > r.Most {
		return r.TooLarge
	}
	v := reqctx.StateOf(c)
	b := &inbound{receiver: r}
	if v.Caller != nil {
		b.company = v.Caller.CompanyID
	}
	c.Set(inboundKey, b)
	defer b.release()
	ctx, release := r.withExtraMemory(c.Request.Context(), b.company)
	defer release()
	c.Request = c.Request.WithContext(ctx)
	c.Next()
	return nil
}

// withExtraMemory returns a context with ExtraMemory of the company. release must be called when the request ends.
func (r *Receiver) withExtraMemory(ctx context.Context, company uuid.UUID) (with context.Context, release func()) {
	if r.Rendered == nil {
		return ctx, func() {}
	}
	extra := &ExtraMemory{memory: r.Rendered, account: inbound{receiver: r, company: company}}
	return context.WithValue(ctx, extraMemoryKey{}, extra), extra.release
}
