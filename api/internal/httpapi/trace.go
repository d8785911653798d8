package httpapi

import (
	"strconv"

	"github.com/gin-gonic/gin"

	"email-gateway/shared/telemetry"
)

// trace makes the request a span, below the caller's own if it names one in the header
// traceparent and has a valid key, of a company that is not suspended and from a network of the key: the flag in it decides whether a trace is kept, and with
// traceidratio its id does, so that anybody could have all of theirs kept, or none. Like the
// log it knows the path as its template only.
func (a *API) trace(c *gin.Context) {
	path := c.FullPath()
	if !a.tracer.On() || isProbe(path) {
		return
	}
	if path == "" {
		path = unmatched
	}
	method := knownMethod(c.Request.Method)
	ctx := c.Request.Context()
	if parent := c.GetHeader("traceparent"); parent != "" && credential(c.Request.Header) != "" {
		found := a.identify(c)
		if found.err == nil && !found.caller.Suspended && mayCallFrom(found.caller, visitOf(c).client) {
			ctx = telemetry.WithTraceparent(ctx, parent)
		}
	}
	ctx, span := a.tracer.Start(ctx, method+" "+path, telemetry.Server)
	defer span.End()
	c.Request = c.Request.WithContext(ctx)
	c.Next()
	v, status := visitOf(c), c.Writer.Status()
	span.Text("http.request.method", method)
	span.Text("http.route", path)
	span.Number("http.response.status_code", int64(status))
	if v.outboxID != "" {
		span.Text("outbox.id", v.outboxID)
	}
	if v.mailingID != "" {
		span.Text("mailing.id", v.mailingID)
	}
	if status >= 500 {
		span.Fail(strconv.Itoa(status))
	}
}

// isProbe finds the paths that machines ask for all day long, about which a trace tells
// nothing.
func isProbe(path string) bool {
	switch path {
	case "/livez", "/readyz", "/health", "/openapi.yaml":
		return true
	}
	return false
}
