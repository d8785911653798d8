// Package middleware has what runs before and after the handlers. A request passes in this order: Start
// (request id), Trace (span), Observe (log and metrics), rescue (panics), refuseMethod, Authenticate
// (key, rate limit, company), RequireScope, handler. A handler returns an error, which Answer maps to
// a problem.
package middleware

import (
	"log/slog"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/api/internal/access"
	"email-gateway/shared/clientip"
	"email-gateway/shared/telemetry"
)

// Params are the dependencies of a Middleware. All are required except Tracer.
type Params struct {
	Log *slog.Logger
	// Keys finds the callers of API keys, Limiter limits their rates.
	Keys     access.Finder
	Limiter  *access.Limiter
	Registry *prometheus.Registry
	// Proxies are the proxies whose X-Forwarded-For is trusted.
	Proxies clientip.Proxies
	Tracer  telemetry.Tracer
}

// Middleware runs before and after the handlers of all routes.
type Middleware struct {
	log       *slog.Logger
	directory *access.Directory
	limiter   *access.Limiter
	proxies   clientip.Proxies
	guard     *clientip.Guard // limits attempts with wrong keys
	measure   *measure
	tracer    telemetry.Tracer
	literals  map[string]string // methods of the paths without a parameter
}

// New returns a Middleware. It fails with a second one on the same registry.
func New(p Params) (*Middleware, error) {
	counts, err := newMeasure(p.Registry)
	if err != nil {
		return nil, err
	}
	return &Middleware{
		log: p.Log, directory: access.NewDirectory(p.Keys), limiter: p.Limiter, proxies: p.Proxies, guard: clientip.NewGuard(),
		measure: counts, tracer: p.Tracer,
	}, nil
}

// Use makes the engine run the middlewares of all routes, and answer requests without a route.
func (m *Middleware) Use(r *gin.Engine) {
	r.Use(m.Start, m.Trace, m.Observe, m.rescue, m.refuseMethod)
	r.NoRoute(m.Answer(func(c *gin.Context) error {
		c.Header("Cache-Control", "no-store") // another release may have the route
		return noSuchRoute
	}))
	r.NoMethod(m.Answer(func(c *gin.Context) error {
		// gin adds the methods of parameterized paths that also match this one.
		if allowed := m.literals[c.Request.URL.Path]; allowed != "" {
			c.Header("Allow", allowed)
		}
		return wrongMethod(c.Request.Method, c.Writer.Header().Get("Allow"))
	}))
}

// Expect prepares for the routes of the engine, which must be complete.
func (m *Middleware) Expect(routes gin.RoutesInfo) {
	m.rememberLiterals(routes)
	m.measure.expect(routes)
}

// Answer makes a handler of a function that may return an error.
func (m *Middleware) Answer(step func(*gin.Context) error) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := step(c); err != nil {
			m.fail(c, err)
		}
	}
}
