// Package webhook stores webhook endpoints, their failed deliveries and replays. The api manages
// them for one company; the worker's sender serves them, one process at a time per endpoint.
//
// Events are those of package event: an endpoint is a cursor over its company's feed. An event whose
// first attempt succeeds leaves no row. A row refers to its event and holds nothing of it.
package webhook

import (
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
)

// MaxEndpoints is how many endpoints a company may have: the CHECK on webhook_endpoints.slot.
const MaxEndpoints = 20

var (
	// ErrTooManyEndpoints: the company has MaxEndpoints.
	ErrTooManyEndpoints = errors.New("the company has as many webhook endpoints as it may")
	// ErrTooManyReplays: MaxReplays of the endpoint are running.
	ErrTooManyReplays = errors.New("as many replays of the endpoint are running as may")
	// ErrDisabled: the endpoint is disabled.
	ErrDisabled = errors.New("the webhook endpoint is disabled")
	// ErrLeaseLost: another process serves the endpoint, or it was deleted or disabled. Nothing was written.
	ErrLeaseLost = errors.New("the lease of the webhook endpoint is lost")
)

// Status is whether an endpoint receives events.
type Status string

const (
	Enabled  Status = "ENABLED"
	Disabled Status = "DISABLED"
)

// Reason is why an endpoint is disabled.
type Reason string

const (
	Requested  Reason = "REQUESTED" // by its company
	ByOperator Reason = "OPERATOR"
	Gone       Reason = "GONE"    // it answered 410
	Failing    Reason = "FAILING" // for too long
)

// Endpoint is a URL that receives a company's events.
type Endpoint struct {
	ID             uuid.UUID      `db:"id"`
	CompanyID      uuid.UUID      `db:"company_id"`
	URL            string         `db:"url"`
	Description    *string        `db:"description"`
	Types          pq.StringArray `db:"types"` // empty = all
	Status         Status         `db:"status"`
	DisabledReason *Reason        `db:"disabled_reason"`
	DisabledAt     *time.Time     `db:"disabled_at"`
	Secret         []byte         `db:"secret_enc"`     // encrypted
	OldSecret      []byte         `db:"old_secret_enc"` // encrypted; nil = none that still signs
	OldSecretUntil *time.Time     `db:"old_secret_until"`
	Cursor                        // of the last event handled
	Failures       int            `db:"failures"` // attempts that failed since the last success
	FailingSince   *time.Time     `db:"failing_since"`
	LastSuccessAt  *time.Time     `db:"last_success_at"`
	LastFailureAt  *time.Time     `db:"last_failure_at"`
	LastError      *string        `db:"last_error"`
	NotBefore      *time.Time     `db:"not_before"` // the endpoint asked to be left alone until then; nil = it did not, or the time is over
	Open           int            `db:"open_deliveries"`
	CreatedAt      time.Time      `db:"created_at"`
	UpdatedAt      time.Time      `db:"updated_at"`
}

const (
	// DownFailures is after how many failed attempts without a success an endpoint counts as down:
	// its cursor stops, and only deliveries that have rows are attempted.
	DownFailures = 10
	// MaxOpen is how many open deliveries stop an endpoint's cursor. A page that was begun with fewer
	// is finished, so there may be a page more.
	MaxOpen = 1000
)

// Down reports whether the endpoint counts as down.
func (e Endpoint) Down() bool { return e.Failures >= DownFailures }

// Health is ok, failing or down, as the company sees it.
func (e Endpoint) Health() string {
	switch {
	case e.Down():
		return "down"
	case e.Failures > 0 || e.Open > 0:
		return "failing"
	}
	return "ok"
}

// DeliveryStatus is the state of a delivery that has a row.
type DeliveryStatus string

const (
	Retrying  DeliveryStatus = "RETRYING"  // is attempted again
	Waiting   DeliveryStatus = "WAITING"   // behind an earlier one of the same email
	Delivered DeliveryStatus = "DELIVERED" // after a failure
	Failed    DeliveryStatus = "FAILED"    // every attempt failed
)

// Delivery is an event for an endpoint that was not delivered at the first attempt, or a test.
type Delivery struct {
	ID            uuid.UUID      `db:"id"`
	EndpointID    uuid.UUID      `db:"endpoint_id"`
	CompanyID     uuid.UUID      `db:"company_id"`
	EventID       string         `db:"event_id"`
	Type          string         `db:"type"`
	Position      int64          `db:"position"` // of the event; 0 = a test
	EmailID       *uuid.UUID     `db:"email_id"` // the company, for its own events
	Status        DeliveryStatus `db:"status"`
	Attempts      int            `db:"attempts"`
	NextAt        *time.Time     `db:"next_at"`
	LastAttemptAt *time.Time     `db:"last_attempt_at"`
	LastStatus    *int           `db:"last_status"`
	LastError     *string        `db:"last_error"`
	LastTookMS    *int           `db:"last_took_ms"`
	CreatedAt     time.Time      `db:"created_at"`
}

// IsTest reports whether the delivery is a test: it has no event of the feed and one attempt.
func (d Delivery) IsTest() bool { return d.Position == 0 }

// TestType is the event type of tests.
const TestType = "webhook.test"

// ReplayStatus is whether a replay has finished.
type ReplayStatus string

const (
	ReplayRunning   ReplayStatus = "RUNNING"
	ReplayCompleted ReplayStatus = "COMPLETED"
)

// Replay is a request to deliver events again: the failed ones, or those of a range of time.
type Replay struct {
	ID           uuid.UUID    `db:"id"`
	EndpointID   uuid.UUID    `db:"endpoint_id"`
	CompanyID    uuid.UUID    `db:"company_id"`
	Since        *time.Time   `db:"since"` // nil = the failed ones
	Until        *time.Time   `db:"until"`
	Cursor                    // of the last event handled
	LastPosition int64        `db:"last_position"` // of the last event that belongs to it
	Status       ReplayStatus `db:"status"`
	Done         int          `db:"done"`
	CreatedAt    time.Time    `db:"created_at"`
	FinishedAt   *time.Time   `db:"finished_at"`
}
