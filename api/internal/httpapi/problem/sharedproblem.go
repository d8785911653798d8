package problem

import (
	"net/http"
	"time"
)

// Problems that several packages return, or Of.
var (
	NoSuchEmail   = Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "there is no such email"}
	aggregateBusy = Problem{Status: http.StatusConflict, Code: "AGGREGATE_IN_PROGRESS", Detail: "an email of this aggregate and event type is being created, rescheduled, cancelled or sent again: repeat the request after Retry-After", RetryAfter: time.Second}
	rowsBusy      = Problem{Status: http.StatusConflict, Code: "AGGREGATE_BUSY", Detail: "other transactions have locked rows that this request changes, and too many requests of the company already wait for such locks: repeat the request after Retry-After", RetryAfter: 2 * time.Second}
	Busy          = Problem{Status: http.StatusServiceUnavailable, Code: "BUSY", Detail: "too many large bodies at once: repeat the request after Retry-After", RetryAfter: time.Second}
	// Without RabbitMQ, mailings and recipients would never be processed.
	BulkDisabled      = Problem{Status: http.StatusServiceUnavailable, Code: "BULK_DISABLED", Disabled: true, Detail: "this installation has no RabbitMQ, which carries mailings and recipients: RABBITMQ_URL must be set"}
	SameKeyInProgress = Problem{Status: http.StatusConflict, Code: "IDEMPOTENCY_IN_PROGRESS", Detail: "a request with this Idempotency-Key is in progress: repeat this one after Retry-After", RetryAfter: time.Second}
)

// Unconfirmed: the outcome of a change is unknown. A change that makes something new each time must not be repeated blindly.
var Unconfirmed = Problem{
	Status: http.StatusServiceUnavailable, Code: "DATABASE_UNAVAILABLE", RetryAfter: 5 * time.Second,
	Detail: "the database did not confirm the change, which may have been made: look up whether it was before you repeat the request",
}

// tooManyAtOnce: the company's own requests use all its slots.
var tooManyAtOnce = Problem{
	Status: http.StatusTooManyRequests, Code: "RATE_LIMITED", Detail: "the company has too many requests in progress: repeat this one after Retry-After", RetryAfter: time.Second,
}

// allBusy: requests of other companies use all slots.
var allBusy = Problem{
	Status: http.StatusServiceUnavailable, Code: "BUSY", Detail: "too many requests of other companies at once: repeat the request after Retry-After", RetryAfter: time.Second,
}
