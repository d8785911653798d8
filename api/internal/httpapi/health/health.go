// Package health answers /livez, /readyz and /health, and exports as metrics which components the api
// reaches.
package health

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/store"
)

// timeout limits one small query to Postgres in health checks.
const timeout = 2 * time.Second

// health is the response of GET /health.
type health struct {
	Status       string         `json:"status"` // ok, degraded or unavailable
	Timestamp    time.Time      `json:"timestamp"`
	Database     databaseHealth `json:"database"`
	Redis        partHealth     `json:"redis"`
	RabbitMQ     rabbitHealth   `json:"rabbitmq"`
	Storage      partHealth     `json:"storage"`
	SES          sesHealth      `json:"ses"`
	SESEvents    partHealth     `json:"sesEvents"` // the queue of SES events; disabled if no worker reads one
	TokenManager tokenHealth    `json:"tokenManager"`
	Dispatcher   processHealth  `json:"dispatcher"`
	Worker       processHealth  `json:"worker"`
}

type databaseHealth struct {
	Status       string `json:"status"`
	ResponseTime int64  `json:"responseTime"` // of a small query, in ms
}

type partHealth struct {
	Status string `json:"status"`
}

// sesHealth says why (a code) and since when nothing is sent.
type sesHealth struct {
	partHealth
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
}

type tokenHealth struct {
	Status          string `json:"status"`
	AvailableTokens int    `json:"availableTokens"`
}

type rabbitHealth struct {
	Status    string `json:"status"`
	Consumers int    `json:"consumers"`
}

type processHealth struct {
	Status    string `json:"status"`
	Instances int    `json:"instances"`
}

// Statuses of components; the storage has its own words. Other processes may report further
// words; words that are not in good make the overall status degraded.
const (
	connected    = "connected"
	disconnected = "disconnected"
	unreplicated = "unreplicated" // no synchronous standby confirms commits
	notMigrated  = "not_migrated" // the table process_status does not exist
	disabled     = "disabled"
	running      = "running"
	accessible   = "accessible"
	inaccessible = "inaccessible"
	unknown      = "unknown"
	parked       = "parked" // the circuit breaker is open: one probe email every few seconds
	paused       = "paused" // an operator has paused all sending
)

// heldByOperator is shown as the reason of an operator's pause. The operator's own text is not
// public.
const heldByOperator = "HELD_BY_OPERATOR"

func good() []string {
	return []string{connected, disabled, running, accessible, "ok", "initialized"}
}

// report is the status that a dispatcher or worker reports of its components.
type report struct {
	Redis     partHealth `json:"redis"`
	RabbitMQ  partHealth `json:"rabbitmq"`
	SES       partHealth `json:"ses"`
	SESEvents partHealth `json:"sesEvents"`
	Storage   partHealth `json:"storage"`
	Consumers int        `json:"consumers"` // consumers of RabbitMQ queues
}

// Check combines the statuses of all processes. The api itself checks Postgres and, for
// mailings, the blob store.
type Check struct {
	confirm     func(context.Context) (struct{}, error) // checks that commits go through
	statuses    func(context.Context) ([]store.ProcessStatus, error)
	gate        func(context.Context) (store.Gate, error)
	hasRabbitMQ bool
	storage     *storageCheck // nil without mailings
	tokens      func() int    // nil without mailings
}

// Params are the dependencies of a Check.
type Params struct {
	Store       Store
	HasRabbitMQ bool
	// PingStorage and AvailableTokens are asked only with RabbitMQ, which mailings need.
	PingStorage     func(context.Context) error
	AvailableTokens func() int
}

// Store is the part of *store.Store that health checks use.
type Store interface {
	Confirm(ctx context.Context) error
	ProcessStatuses(ctx context.Context) ([]store.ProcessStatus, error)
	Gate(ctx context.Context) (store.Gate, error)
}

// New creates a Check. It checks storage and tokens only if mailings are accepted.
func New(p Params) *Check {
	hc := &Check{confirm: shared(confirming(p.Store)), statuses: shared(p.Store.ProcessStatuses), gate: shared(p.Store.Gate), hasRabbitMQ: p.HasRabbitMQ}
	if p.HasRabbitMQ {
		hc.storage = &storageCheck{ping: p.PingStorage}
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

// readiness is the response of GET /readyz. While the process drains, service.Drain answers instead.
type readiness struct {
	Status   string     `json:"status"` // ok or unavailable
	Database partHealth `json:"database"`
}

// liveness is the response of GET /livez, in the format of the dispatcher and the worker, so
// that one check works for all three.
type liveness struct {
	Status string `json:"status"`
}

// ShowLive reports that the process responds, independent of its dependencies.
func ShowLive(c *gin.Context) {
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, liveness{Status: "ok"})
}

// ShowReady reports whether the api can handle requests: it needs Postgres and commits that go
// through, and nothing else.
func (hc *Check) ShowReady(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), timeout)
	defer cancel()
	status, answer := http.StatusOK, readiness{Status: "ok", Database: partHealth{connected}}
	_, err := reqctx.WithDeadline(ctx, hc.confirm)
	if err == nil {
		_, err = reqctx.WithDeadline(ctx, hc.statuses) // reads a table that may not exist yet
	}
	if err != nil {
		status, answer = http.StatusServiceUnavailable, readiness{Status: "unavailable", Database: databasePart(err)}
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(status, answer)
}

// databasePart returns the status of an unusable Postgres. The error, which may contain host
// addresses, is only logged.
func databasePart(err error) partHealth {
	switch {
	case errors.Is(err, store.ErrUnreplicated):
		return partHealth{unreplicated}
	case errors.Is(err, store.ErrNotMigrated):
		return partHealth{notMigrated}
	}
	return partHealth{disconnected}
}

func (hc *Check) check(ctx context.Context) health {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	h := health{
		Timestamp:    began.UTC(),
		Database:     databaseHealth{Status: connected},
		Redis:        partHealth{unknown},
		RabbitMQ:     rabbitHealth{Status: unknown},
		Storage:      partHealth{disabled},
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
	h.Database.ResponseTime = time.Since(began).Milliseconds()
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
	if gate, err := reqctx.WithDeadline(ctx, hc.gate); err == nil {
		h.SES.stop(gate)
	}
	h.Status = h.overall()
	return h
}

// add merges the status of one process. If two differ, the worse one counts.
func (h *health) add(s store.ProcessStatus, hasRabbitMQ bool) {
	var r report
	if json.Unmarshal(s.Details, &r) != nil {
		return
	}
	process := &h.Worker
	if s.Service == "dispatcher" {
		process = &h.Dispatcher
	}
	process.Status = running
	process.Instances++
	h.Redis.Status = worse(h.Redis.Status, r.Redis.Status)
	h.SES.Status = worse(h.SES.Status, r.SES.Status)
	h.SESEvents.Status = worse(h.SESEvents.Status, r.SESEvents.Status)
	if hasRabbitMQ {
		h.RabbitMQ.Status = worse(h.RabbitMQ.Status, r.RabbitMQ.Status)
		h.RabbitMQ.Consumers += r.Consumers
		h.Storage.Status = worse(h.Storage.Status, storageWord(r.Storage.Status))
	}
}

// storageWord translates connected and disconnected to the words of the storage.
func storageWord(said string) string {
	switch said {
	case connected:
		return accessible
	case disconnected:
		return inaccessible
	}
	return said
}

// stop applies the circuit breaker: SES may be reachable while nothing is sent.
func (s *sesHealth) stop(g store.Gate) {
	switch {
	case g.HeldAt != nil:
		s.Status, s.Reason, s.Since = paused, heldByOperator, g.HeldAt
	case g.State == store.GateShut && g.Reason != nil:
		s.Status, s.Reason, s.Since = parked, *g.Reason, &g.Since
	default:
		return
	}
	at := s.Since.UTC()
	s.Since = &at
}

// worse merges two statuses of a component; unknown yields to any other.
func worse(so, said string) string {
	switch {
	case said == "" || said == unknown:
		return so
	case so == unknown, slices.Contains(good(), so):
		return said
	}
	return so
}

func (h *health) overall() string {
	for _, status := range []string{
		h.Database.Status, h.Redis.Status, h.RabbitMQ.Status, h.Storage.Status, h.SES.Status, h.SESEvents.Status, h.TokenManager.Status,
		h.Dispatcher.Status, h.Worker.Status,
	} {
		if !slices.Contains(good(), status) {
			return "degraded"
		}
	}
	return "ok"
}
