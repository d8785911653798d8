package middleware

import (
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/unsubscribepage"
	"email-gateway/shared/telemetry"
)

// Observe writes one log line and counts one request, also for a response that was aborted.
func (m *Middleware) Observe(c *gin.Context) {
	start := time.Now()
	defer func() { m.record(c, time.Since(start)) }()
	c.Next()
}

// statusOf returns the status of the response. An aborted one has sent another before.
func statusOf(c *gin.Context) int {
	if aborted := reqctx.StateOf(c).Aborted; aborted != 0 {
		return aborted
	}
	return c.Writer.Status()
}

// record logs and counts a request. The path is the route's template: actual paths and query
// strings may contain anything.
func (m *Middleware) record(c *gin.Context, took time.Duration) {
	path, method := c.FullPath(), knownMethod(c.Request.Method)
	if path == "" {
		path = unmatched
	}
	status := statusOf(c)
	v := reqctx.StateOf(c)
	m.measure.requests.WithLabelValues(method, path, strconv.Itoa(status), yesNo(v.Disabled)).Inc()
	m.measure.duration.WithLabelValues(method, path).Observe(v.ProcessingTime(took).Seconds())

	attributes := make([]slog.Attr, 0, 14)
	attributes = append(attributes,
		slog.String(telemetry.RequestID, v.RequestID),
		slog.String("method", method),
		slog.String("path", path),
		slog.Int("status", status),
		slog.Int("bytes", c.Writer.Size()),
		slog.Float64(telemetry.DurationMS, float64(took.Microseconds())/1000),
	)
	// People follow unsubscribe links: their addresses are not logged.
	if v.Client.IsValid() && path != unsubscribepage.Path {
		attributes = append(attributes, slog.String("client", v.Client.String()))
	}
	if v.Caller != nil {
		attributes = append(attributes, slog.String("key", v.Caller.KeyID))
	}
	attributes = append(attributes, v.LogAttributes()...)
	if trace := telemetry.TraceIDOf(c.Request.Context()); trace != "" {
		attributes = append(attributes, slog.String(telemetry.TraceID, trace))
	}
	m.log.LogAttrs(c.Request.Context(), telemetry.Record(slog.LevelInfo), "request", attributes...)
	// After a restore of the database, the ids of later emails are in the log alone.
	for n := telemetry.MaxIDs; n < len(v.OutboxIDs); n += telemetry.MaxIDs {
		rest := v.OutboxIDs[n:]
		m.log.LogAttrs(c.Request.Context(), telemetry.Record(slog.LevelInfo), "more emails of the request",
			slog.String(telemetry.RequestID, v.RequestID), slog.String("method", method), slog.String("path", path), slog.Int("status", status),
			slog.String(telemetry.CompanyID, v.Caller.CompanyID.String()),
			slog.Any(telemetry.OutboxID, telemetry.IDs(len(rest), func(i int) string { return rest[i] })))
	}
}

// unmatched is logged for paths without a route.
const unmatched = "unmatched"

// knownMethod returns the request's method, or OTHER: clients choose the method, and the values
// of a label must be bounded.
func knownMethod(method string) string {
	if slices.Contains(methods, method) {
		return method
	}
	return "OTHER"
}

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
	http.MethodPatch, http.MethodDelete, http.MethodOptions,
}
