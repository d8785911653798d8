package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

// measure counts and times requests.
type measure struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	refusals *prometheus.CounterVec
}

func newMeasure(registry *prometheus.Registry) (*measure, error) {
	m := &measure{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mailing_api_requests_total",
			Help: "Requests answered, by method, path template and status.",
		}, []string{"method", "path", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "mailing_api_request_duration_seconds",
			Help:    "Time from the request's headers to the end of its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"method", "path"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quota_refusals_total",
			Help: "Requests rejected because they would exceed a quota of their company, by quota.",
		}, []string{"quota"}),
	}
	for _, quota := range store.Quotas() {
		m.refusals.WithLabelValues(string(quota))
	}
	if err := errors.Join(registry.Register(m.requests), registry.Register(m.duration), registry.Register(m.refusals)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

// expect creates the counters of each route's server errors at the start: Prometheus's increase
// ignores the first value of a counter.
func (m *measure) expect(routes gin.RoutesInfo) {
	for _, route := range routes {
		for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable} {
			m.requests.WithLabelValues(route.Method, route.Path, strconv.Itoa(status))
		}
	}
}

// observe writes one log line and counts one request. The path is the route's template: actual
// paths and query strings may contain anything.
func (a *API) observe(c *gin.Context) {
	began := time.Now()
	c.Next()
	took := time.Since(began)

	path, method := c.FullPath(), knownMethod(c.Request.Method)
	if path == "" {
		path = unmatched
	}
	status := c.Writer.Status()
	a.measure.requests.WithLabelValues(method, path, strconv.Itoa(status)).Inc()
	a.measure.duration.WithLabelValues(method, path).Observe(took.Seconds())

	v := visitOf(c)
	attributes := make([]slog.Attr, 0, 14)
	attributes = append(attributes,
		slog.String(telemetry.RequestID, v.requestID),
		slog.String("method", method),
		slog.String("path", path),
		slog.Int("status", status),
		slog.Int("bytes", c.Writer.Size()),
		slog.Float64(telemetry.DurationMS, float64(took.Microseconds())/1000),
	)
	// People follow unsubscribe links: their addresses are not logged.
	if v.client.IsValid() && path != unsubscribePath {
		attributes = append(attributes, slog.String("client", v.client.String()))
	}
	if v.caller != nil {
		attributes = append(attributes, slog.String("key", v.caller.KeyID))
	}
	attributes = append(attributes, v.logAttributes()...)
	if trace := telemetry.TraceIDOf(c.Request.Context()); trace != "" {
		attributes = append(attributes, slog.String(telemetry.TraceID, trace))
	}
	a.log.LogAttrs(c.Request.Context(), slog.LevelInfo, "request", attributes...)
}

// unsubscribePath is the route of unsubscribe links, unsubscribePrefix its prefix.
const (
	unsubscribePrefix = "/u/"
	unsubscribePath   = unsubscribePrefix + ":token"
)

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
