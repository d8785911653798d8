// Package webhook stores webhook endpoints, their failed deliveries and replays. The api manages them for one company;
// the worker's sender serves them, one process at a time per endpoint.
//
// Events are those of package event: an endpoint is a cursor over its company's feed. An event whose first attempt
// succeeds has no row in webhook_deliveries. A row refers to its event and contains no event data.
package webhook

import (
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
)

// MaxEndpoints is the maximum number of endpoints per company. The CHECK on webhook_endpoints.slot enforces it.
const MaxEndpoints = 20

var (
	// ErrTooManyEndpoints: the company has MaxEndpoints.
	ErrTooManyEndpoints = errors.New("the company has the maximum number of webhook endpoints")
	// ErrTooManyReplays: MaxReplays of the endpoint are running.
	ErrTooManyReplays = errors.New("the endpoint has the maximum number of running replays")
	// ErrDisabled: the endpoint is disabled.
	ErrDisabled = errors.New("the webhook endpoint is disabled")
	// ErrLeaseLost: another process serves the endpoint, or it was deleted or disabled. Nothing was written.
	ErrLeaseLost = errors.New("the lease of the webhook endpoint is lost")
)

// Status says whether an endpoint receives events.
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
	Failing    Reason = "FAILING" // its attempts failed for too long
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
	OldSecret      []byte         `db:"old_secret_enc"` // encrypted; nil = no old secret signs
	OldSecretUntil *time.Time     `db:"old_secret_until"`
	Cursor                        // of the last event handled
	Failures       int            `db:"failures"` // failed attempts since the last success; a refused event counts as the first one
	FailingSince   *time.Time     `db:"failing_since"`
	LastSuccessAt  *time.Time     `db:"last_success_at"`
	LastFailureAt  *time.Time     `db:"last_failure_at"`
	LastError      *string        `db:"last_error"`
	NotBefore      *time.Time     `db:"not_before"` // end of the pause, requested with Retry-After or because the endpoint throttles; nil = none
	Open           int            `db:"open_deliveries"`
	CreatedAt      time.Time      `db:"created_at"`
	UpdatedAt      time.Time      `db:"updated_at"`
}

const (
	// DownFailures is the number of failed attempts without a success or a refused event after which an endpoint is down:
	// its cursor stops, and besides deliveries that have rows only a probe is attempted.
	DownFailures = 10
	// MaxOpen is the number of open deliveries that stops an endpoint's cursor. A page that was begun with fewer is
	// finished, so one more page of deliveries may be open.
	MaxOpen = 1000
)

// Down reports whether the endpoint is down: see DownFailures.
func (e Endpoint) Down() bool { return e.Failures >= DownFailures }

// Health returns ok, failing or down, as shown to the company.
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
	Retrying  DeliveryStatus = "RETRYING"  // will be attempted again
	Waiting   DeliveryStatus = "WAITING"   // for an earlier delivery of the same email
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
	EmailID       *uuid.UUID     `db:"email_id"` // the company for events of the company
	Status        DeliveryStatus `db:"status"`
	Attempts      int            `db:"attempts"`
	NextAt        *time.Time     `db:"next_at"`
	ScheduledAt   *time.Time     `db:"scheduled_at"` // set until this time: a failed attempt before it does not count
	LastAttemptAt *time.Time     `db:"last_attempt_at"`
	LastStatus    *int           `db:"last_status"`
	LastError     *string        `db:"last_error"`
	LastTookMS    *int           `db:"last_took_ms"`
	CreatedAt     time.Time      `db:"created_at"`
}

// IsTest reports whether the delivery is a test, which has no event in the feed and one attempt.
func (d Delivery) IsTest() bool { return d.Position == 0 }

// testType is the event type of tests.
const testType = "webhook.test"

// ReplayStatus says whether a replay has finished.
type ReplayStatus string

const (
	ReplayRunning   ReplayStatus = "RUNNING"
	ReplayCompleted ReplayStatus = "COMPLETED"
)

// Replay is a request to deliver events again: the failed ones, or those of a time range.
type Replay struct {
	ID           uuid.UUID    `db:"id"`
	EndpointID   uuid.UUID    `db:"endpoint_id"`
	CompanyID    uuid.UUID    `db:"company_id"`
	Since        *time.Time   `db:"since"` // nil = replay the failed deliveries
	Until        *time.Time   `db:"until"`
	Cursor                    // of the last event handled
	LastPosition int64        `db:"last_position"` // of the last event that belongs to it
	Status       ReplayStatus `db:"status"`
	Done         int          `db:"done"`
	CreatedAt    time.Time    `db:"created_at"`
	FinishedAt   *time.Time   `db:"finished_at"`
}
