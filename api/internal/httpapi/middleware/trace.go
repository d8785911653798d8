package middleware

import (
	"strconv"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/telemetry"
)

// Trace creates the request's span. The caller's traceparent becomes its parent only if the key
// is valid, its company not suspended and the client in a network of the key: the header decides
// whether a trace is kept (by its flag or, with traceidratio, by its id), so otherwise anybody
// could force or prevent that. Like the log, the span contains the path only as its template.
func (m *Middleware) Trace(c *gin.Context) {
	path := c.FullPath()
	if !m.tracer.On() || isProbe(path) {
		return
	}
	if path == "" {
		path = unmatched
	}
	method := knownMethod(c.Request.Method)
	ctx := c.Request.Context()
	if parent := c.GetHeader("traceparent"); parent != "" && credential(c.Request.Header) != "" {
		found := m.identify(c)
		if found.Err == nil && !found.Caller.Suspended && mayCallFrom(found.Caller, reqctx.StateOf(c).Client) {
			ctx = telemetry.WithTraceparent(ctx, parent)
		}
	}
	ctx, span := m.tracer.Start(ctx, method+" "+path, telemetry.Server)
	defer func() {
		v, status := reqctx.StateOf(c), statusOf(c)
		span.Text("http.request.method", method)
		span.Text("http.route", path)
		span.Number("http.response.status_code", int64(status))
		if v.OutboxID != "" {
			span.Text("outbox.id", v.OutboxID)
		}
		if v.MailingID != "" {
			span.Text("mailing.id", v.MailingID)
		}
		if status >= 500 {
			span.Fail(strconv.Itoa(status))
		}
		span.End()
	}()
	c.Request = c.Request.WithContext(ctx)
	c.Next()
}

// isProbe reports whether the path is polled by machines; tracing it is useless.
func isProbe(path string) bool {
	switch path {
	case "/livez", "/readyz", "/health", "/openapi.yaml":
		return true
	}
	return false
}
