package health

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"email-gateway/shared/store"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/process"
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
	// usesRabbitMQ: at least one instance does.
	usesRabbitMQ bool
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

// add merges the status of one process. If two differ, the worse one counts.
func (h *health) add(s process.Status, hasRabbitMQ bool) {
	var r report
	if json.Unmarshal(s.Details, &r) != nil {
		return
	}
	program := &h.Worker
	if s.Service == "dispatcher" {
		program = &h.Dispatcher
	}
	program.Status = running
	program.Instances++
	h.Redis.Status = mergeStatus(h.Redis.Status, r.Redis.Status)
	h.SES.Status = mergeStatus(h.SES.Status, r.SES.Status)
	h.SESEvents.Status = mergeStatus(h.SESEvents.Status, r.SESEvents.Status)
	h.Storage.Status = mergeStatus(h.Storage.Status, storageWord(r.Storage.Status))
	if hasRabbitMQ {
		h.RabbitMQ.Status = mergeStatus(h.RabbitMQ.Status, r.RabbitMQ.Status)
		h.RabbitMQ.Consumers += r.Consumers
		program.usesRabbitMQ = program.usesRabbitMQ || r.RabbitMQ.Status != ""
	}
}

// needRabbitMQ reports RabbitMQ as disconnected if dispatchers run and none uses it, or workers run and none uses it: the
// api would accept bulk jobs that are never published or consumed.
func (h *health) needRabbitMQ() {
	for _, program := range []processHealth{h.Dispatcher, h.Worker} {
		if program.Instances > 0 && !program.usesRabbitMQ {
			h.RabbitMQ.Status = mergeStatus(h.RabbitMQ.Status, disconnected)
		}
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
func (s *sesHealth) stop(g breaker.Breaker) {
	switch {
	case g.HeldAt != nil:
		s.Status, s.Reason, s.Since = paused, heldByOperator, g.HeldAt
	case g.IsOpen && g.Reason != nil:
		s.Status, s.Reason, s.Since = parked, *g.Reason, &g.Since
	default:
		return
	}
	at := s.Since.UTC()
	s.Since = &at
}

// mergeStatus returns the worse of two statuses of a component; unknown yields to any other.
func mergeStatus(current, reported string) string {
	switch {
	case reported == "" || reported == unknown:
		return current
	case current == unknown, slices.Contains(good(), current):
		return reported
	}
	return current
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
