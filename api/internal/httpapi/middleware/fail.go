package middleware

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/httpapi/unsubscribepage"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

// body is a problem as sent (RFC 9457).
type body struct {
	Type      string        `json:"type"`
	Title     string        `json:"title"`
	Status    int           `json:"status"`
	Detail    string        `json:"detail"`
	Code      string        `json:"code"`
	RequestID string        `json:"requestId"`
	Errors    []rules.Fault `json:"errors,omitempty"`
	*problem.QuotaUse
	OldestCursor string `json:"oldestCursor,omitempty"`
}

// levelOf is the log level of a failed request. It is only a warning if the client disconnected,
// or the shutdown of the api interrupted the request.
func levelOf(ctx context.Context, err error) slog.Level {
	if problem.Of(err).Disabled {
		return slog.LevelInfo
	}
	if errors.Is(ctx.Err(), context.Canceled) && (errors.Is(err, context.Canceled) || store.IsOutage(err)) {
		return slog.LevelWarn
	}
	return slog.LevelError
}

// fail responds with the error's problem and ends the request.
func (m *Middleware) fail(c *gin.Context, err error) {
	p := problem.Of(err)
	v := reqctx.StateOf(c)
	v.Disabled = p.Disabled
	if unsubscribepage.IsPath(c) && p.RetryAfter > 0 {
		p.Status = http.StatusServiceUnavailable // mail clients repeat a one-click unsubscribe after a 503
	}
	if p.Quota != nil {
		m.measure.refusals.WithLabelValues(string(p.Quota.Quota)).Inc()
	}
	if p.Status >= http.StatusInternalServerError && !errors.Is(err, errPanic) {
		m.log.LogAttrs(c.Request.Context(), levelOf(c.Request.Context(), err), "request failed", append(v.LogAttributes(),
			slog.String(telemetry.RequestID, v.RequestID), slog.Int64(telemetry.DurationMS, time.Since(v.Began).Milliseconds()),
			slog.String("path", c.FullPath()), slog.String("error", email.MaskText(err.Error())))...)
	}
	if c.Writer.Written() {
		response.Abort(c, err, false)
	}
	if p.Status == http.StatusUnauthorized {
		c.Header("WWW-Authenticate", `Bearer realm="email-gateway"`)
	}
	if p.RetryAfter > 0 {
		c.Header("Retry-After", strconv.Itoa(response.Seconds(p.RetryAfter)))
	}
	if unsubscribepage.IsPath(c) && unsubscribepage.ShowProblem(c, p) {
		c.Abort()
		return
	}
	c.Header("Content-Type", problem.MediaType)
	c.AbortWithStatusJSON(p.Status, body{
		Type: "about:blank", Title: http.StatusText(p.Status), Status: p.Status,
		Detail: p.Detail, Code: p.Code, RequestID: v.RequestID, Errors: p.Faults, QuotaUse: p.Quota, OldestCursor: p.OldestCursor,
	})
}
