package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/shared/store"
)

// healthTimeout is how long Postgres may take for one small query before it counts
// as gone.
const healthTimeout = 2 * time.Second

// health is the answer of GET /health.
type health struct {
	Status       string         `json:"status"` // ok, degraded or unavailable
	Timestamp    time.Time      `json:"timestamp"`
	Database     databaseHealth `json:"database"`
	Redis        partHealth     `json:"redis"`
	RabbitMQ     rabbitHealth   `json:"rabbitmq"`
	Storage      partHealth     `json:"storage"`
	SES          sesHealth      `json:"ses"`
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

// sesHealth tells, while nothing is sent, why (a code) and since when.
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

// What a part can be; the storage's good and bad words are its own. The other processes may know more words; those that are not
// in good make the whole degraded.
const (
	connected    = "connected"
	disconnected = "disconnected"
	unreplicated = "unreplicated" // no synchronous standby confirms what Postgres commits
	notMigrated  = "not_migrated" // the table process_status does not exist
	disabled     = "disabled"
	running      = "running"
	accessible   = "accessible"
	inaccessible = "inaccessible"
	unknown      = "unknown"
	parked       = "parked" // the provider takes no mail: one email every few seconds asks whether it does again
	paused       = "paused" // an operator holds everything back
)

// heldByOperator is the reason shown for an operator's hold. His own words are not for
// everybody who can ask for /health.
const heldByOperator = "HELD_BY_OPERATOR"

func good() []string {
	return []string{connected, disabled, running, accessible, "ok", "initialized"}
}

// report is what a dispatcher or worker says about the parts it talks to.
type report struct {
	Redis     partHealth `json:"redis"`
	RabbitMQ  partHealth `json:"rabbitmq"`
	SES       partHealth `json:"ses"`
	Storage   partHealth `json:"storage"`
	Consumers int        `json:"consumers"` // of RabbitMQ's queues, taking messages
}

// healthCheck puts together what the processes say. The api itself talks to Postgres
// and, for mailings, to the blob store.
type healthCheck struct {
	confirm     func(context.Context) (struct{}, error) // that commits go through
	statuses    func(context.Context) ([]store.ProcessStatus, error)
	gate        func(context.Context) (store.Gate, error)
	hasRabbitMQ bool
	storage     *storageCheck // nil where there are no mailings
	tokens      func() int    // the same
}

func (a *API) showHealth(c *gin.Context) {
	h := a.health.check(c.Request.Context())
	status := http.StatusOK
	if h.Database.Status != connected {
		status = http.StatusServiceUnavailable
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(status, h)
}

// readiness is the answer of GET /readyz. While the process drains, service.Drain answers in its place.
type readiness struct {
	Status   string     `json:"status"` // ok or unavailable
	Database partHealth `json:"database"`
}

// liveness is the answer of GET /livez, in the words of the dispatcher and the worker, so
// that one check fits all three.
type liveness struct {
	Status string `json:"status"`
}

// showLive says that the process answers, whatever it depends on.
func showLive(c *gin.Context) {
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, liveness{Status: "ok"})
}

// showReady says whether requests should come here: the api needs Postgres, and commits that go through, for all of
// them, and nothing else for any.
func (a *API) showReady(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), healthTimeout)
	defer cancel()
	status, answer := http.StatusOK, readiness{Status: "ok", Database: partHealth{connected}}
	_, err := within(ctx, a.health.confirm)
	if err == nil {
		_, err = within(ctx, a.health.statuses) // it reads a table, which may not be there yet
	}
	if err != nil {
		status, answer = http.StatusServiceUnavailable, readiness{Status: "unavailable", Database: databasePart(err)}
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(status, answer)
}

// databasePart is a Postgres that cannot be used. The error itself, which may hold addresses of
// machines, is in the log.
func databasePart(err error) partHealth {
	switch {
	case errors.Is(err, store.ErrUnreplicated):
		return partHealth{unreplicated}
	case errors.Is(err, store.ErrNotMigrated):
		return partHealth{notMigrated}
	}
	return partHealth{disconnected}
}

func (hc *healthCheck) check(ctx context.Context) health {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	began := time.Now()
	h := health{
		Timestamp:    began.UTC(),
		Database:     databaseHealth{Status: connected},
		Redis:        partHealth{unknown},
		RabbitMQ:     rabbitHealth{Status: unknown},
		Storage:      partHealth{disabled},
		SES:          sesHealth{partHealth: partHealth{unknown}},
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
		_, err := within(ctx, hc.confirm)
		confirmed <- err
	}()
	statuses, err := within(ctx, hc.statuses)
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
	if gate, err := within(ctx, hc.gate); err == nil {
		h.SES.stop(gate)
	}
	h.Status = h.verdict()
	return h
}

// add takes one process's word. Where two differ the worse one counts.
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
	if hasRabbitMQ {
		h.RabbitMQ.Status = worse(h.RabbitMQ.Status, r.RabbitMQ.Status)
		h.RabbitMQ.Consumers += r.Consumers
		h.Storage.Status = worse(h.Storage.Status, storageWord(r.Storage.Status))
	}
}

// storageWord is what /health says of a storage where other parts are connected or not.
func storageWord(said string) string {
	switch said {
	case connected:
		return accessible
	case disconnected:
		return inaccessible
	}
	return said
}

// stop takes the gate's word: what a worker can reach is not what it may send to.
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

// worse joins two words about one part; unknown yields to any other.
func worse(so, said string) string {
	switch {
	case said == "" || said == unknown:
		return so
	case so == unknown, slices.Contains(good(), so):
		return said
	}
	return so
}

func (h *health) verdict() string {
	for _, status := range []string{
		h.Database.Status, h.Redis.Status, h.RabbitMQ.Status, h.Storage.Status, h.SES.Status, h.TokenManager.Status,
		h.Dispatcher.Status, h.Worker.Status,
	} {
		if !slices.Contains(good(), status) {
			return "degraded"
		}
	}
	return "ok"
}
