package reqbody

import (
	"errors"
	"fmt"
	"os"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/attachment"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqctx"
)

// ReadFile receives the body to disk.
func ReadFile(c *gin.Context) (*attachment.Content, error) {
	v := reqctx.StateOf(c)
	b := inboundOf(c)
	v.BodyRead = true
	b.body = NewSlowBody(c, b.receiver.Most, b.receiver.Pace, b.receiver.Time)
	if err := b.receiver.Memory.enter(b); err != nil {
		v.BodyRead = false
		return nil, err
	}
	content, err := attachment.Receive(b.body, bodyDisk{b}, b.receiver.Most)
	b.receiver.Memory.arrived(b)
	b.body.end()
	if err == nil {
		return content, nil
	}
	v.BodyRead = false
	CloseAfterResponse(c)
	var known problem.Problem
	switch {
	case b.body.Err != nil && !errors.Is(b.body.Err, os.ErrDeadlineExceeded):
		return nil, b.problem(b.body.Err)
	case errors.Is(err, attachment.ErrTooLarge):
		return nil, b.receiver.TooLarge
	case errors.As(err, &known), errors.Is(err, os.ErrDeadlineExceeded):
		return nil, b.problem(err)
	}
	return nil, fmt.Errorf("%w: %w", problem.Busy, err)
}
