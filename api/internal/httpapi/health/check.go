// Package health answers /livez, /readyz and /health, and exports metrics of the components that the api
// can reach.
package health

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/process"
	"email-gateway/shared/telemetry"
)

// Check combines the statuses of all processes. The api itself checks Postgres and the blob store.
type Check struct {
	confirm     func(context.Context) (struct{}, error) // checks that commits go through
	statuses    func(context.Context) ([]process.Status, error)
	breaker     func(context.Context) (breaker.Breaker, error)
	hasRabbitMQ bool
	storage     *storageCheck
	tokens      func() int // nil without mailings
}

// Params are the dependencies of a Check.
type Params struct {
	Log         *slog.Logger
	Store       Store
	HasRabbitMQ bool
	PingStorage func(context.Context) error
	// AvailableTokens is called only with RabbitMQ, which mailings need.
	AvailableTokens func() int
}

// Store is the part of *store.Store that health checks use.
type Store interface {
	Confirm(ctx context.Context) error
	ProcessStatuses(ctx context.Context) ([]process.Status, error)
	Breaker(ctx context.Context) (breaker.Breaker, error)
}

// New returns a Check. It checks tokens only if mailings are accepted.
func New(p Params) *Check {
	hc := &Check{
		confirm: shared(confirming(p.Store, telemetry.NewDependencyLog(p.Log))), statuses: shared(p.Store.ProcessStatuses), breaker: shared(p.Store.Breaker),
		hasRabbitMQ: p.HasRabbitMQ, storage: &storageCheck{ping: p.PingStorage},
	}
	if p.HasRabbitMQ {
		hc.tokens = p.AvailableTokens
	}
	return hc
}

// Show handles GET /health.
func (hc *Check) Show(c *gin.Context) {
	h := hc.check(c.Request.Context())
	status := http.StatusOK
	if h.Database.Status != connected {
		status = http.StatusServiceUnavailable
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(status, h)
}

func (hc *Check) check(ctx context.Context) health {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	h := health{
		Timestamp:    start.UTC(),
		Database:     databaseHealth{Status: connected},
		Redis:        partHealth{unknown},
		RabbitMQ:     rabbitHealth{Status: unknown},
		SES:          sesHealth{partHealth: partHealth{unknown}},
		SESEvents:    partHealth{disabled},
		TokenManager: tokenHealth{Status: disabled},
		Dispatcher:   processHealth{Status: unknown},
		Worker:       processHealth{Status: unknown},
	}
	if !hc.hasRabbitMQ {
		h.RabbitMQ.Status = disabled
	}
	if hc.tokens != nil {
		h.TokenManager = tokenHealth{Status: "initialized", AvailableTokens: hc.tokens()}
	}
	storage, confirmed := make(chan string, 1), make(chan error, 1)
	go func() { storage <- hc.storage.status(ctx) }()
	go func() {
		_, err := reqctx.WithDeadline(ctx, hc.confirm)
		confirmed <- err
	}()
	statuses, err := reqctx.WithDeadline(ctx, hc.statuses)
	h.Database.ResponseTime = time.Since(start).Milliseconds()
	h.Storage.Status = <-storage
	if err = errors.Join(<-confirmed, err); err != nil {
		h.Status, h.Database.Status = "unavailable", databasePart(err).Status
		return h
	}
	for _, s := range statuses {
		if s.Live() {
			h.add(s, hc.hasRabbitMQ)
		}
	}
	if hc.hasRabbitMQ {
		h.needRabbitMQ()
	}
	if found, err := reqctx.WithDeadline(ctx, hc.breaker); err == nil {
		h.SES.stop(found)
	}
	h.Status = h.overall()
	return h
}
