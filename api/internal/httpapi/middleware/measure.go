package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store/quota"
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
			Help: "Requests answered, by method, path template and status. disabled is \"yes\" if the configuration switches off what was requested.",
		}, []string{"method", "path", "status", "disabled"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "mailing_api_request_duration_seconds",
			Help:    "Time from the request's headers to the end of its answer, without the time that the client takes to send the body.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"method", "path"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quota_refusals_total",
			Help: "Requests rejected because they would exceed a quota of their company, by quota.",
		}, []string{"quota"}),
	}
	for _, q := range quota.All() {
		m.refusals.WithLabelValues(string(q))
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
			m.requests.WithLabelValues(route.Method, route.Path, strconv.Itoa(status), yesNo(false))
		}
	}
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
