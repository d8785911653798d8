// Package problem has the error responses of the api (RFC 9457): their type, those that several
// packages return, and Of, which maps every error to one. The problems of one family of routes are in
// files of its package whose names end in problem.go.
package problem

import (
	"context"
	"errors"
	"net/http"
	"time"

	"email-gateway/api/internal/access"
	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/draft"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/quota"
)

// Problem is an error response. Handlers return one, or an error that Of maps.
type Problem struct {
	Status     int
	Code       string
	Detail     string
	Faults     []rules.Fault
	RetryAfter time.Duration
	Quota      *QuotaUse // for QUOTA_EXCEEDED
	// OldestCursor is for CURSOR_EXPIRED.
	OldestCursor string
	// Disabled means that the configuration switches the function off. Anybody may call such a route at any rate: it is neither
	// logged nor counted as an error of the api.
	Disabled bool
}

// Error returns the code and the detail.
func (p Problem) Error() string { return p.Code + ": " + p.Detail }

// Codes used in several places.
const (
	codeValidationFailed  = "VALIDATION_FAILED"
	codeSenderNotAllowed  = draft.CodeSenderNotAllowed
	CodeRecipientNotFound = email.CodeRecipientNotFound
	codeInvalidTemplate   = email.CodeInvalidTemplate
	CodeQuotaExceeded     = "QUOTA_EXCEEDED"
)

// StatusClientGone is the status that nginx logs if the client disconnects before the response.
const StatusClientGone = 499

// Of maps every error to a problem.
func Of(err error) Problem {
	var known Problem
	var syntax *strictjson.SyntaxError
	var over *quota.Error
	var paused *mailing.PausedError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &over):
		return QuotaExceeded(over)
	case errors.As(err, &paused):
		return mailingsPaused(paused)
	case errors.As(err, &syntax):
		return Problem{Status: http.StatusBadRequest, Code: "MALFORMED_JSON", Detail: syntax.Error()}
	case errors.Is(err, store.ErrNotFound):
		return NoSuchEmail
	case errors.Is(err, outbox.ErrAggregateBusy):
		return aggregateBusy
	case errors.Is(err, idempotency.ErrInProgress):
		return SameKeyInProgress
	case errors.Is(err, store.ErrBusy):
		return rowsBusy
	case errors.Is(err, access.ErrNoKey):
		return noKey
	case errors.Is(err, access.ErrExpiredKey):
		return expiredKey
	case errors.Is(err, access.ErrMalformedKey):
		return malformedKey
	case errors.Is(err, access.ErrUnknownKey):
		return wrongKey
	case errors.Is(err, slots.ErrCompanyBusy), errors.Is(err, store.ErrTriesOfCompany):
		return tooManyAtOnce
	case errors.Is(err, slots.ErrAllBusy), errors.Is(err, store.ErrTries):
		return allBusy
	case errors.Is(err, store.ErrUnknownOutcome): // also if only the standby did not confirm it
		return Unconfirmed
	case errors.Is(err, store.ErrUnreplicated):
		return Problem{Status: http.StatusServiceUnavailable, Code: "DATABASE_UNAVAILABLE", Detail: "no standby confirms commits of the database: repeat the request after Retry-After", RetryAfter: 5 * time.Second}
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrNotMigrated), errors.Is(err, context.DeadlineExceeded):
		return Problem{Status: http.StatusServiceUnavailable, Code: "DATABASE_UNAVAILABLE", Detail: "the database cannot be reached: repeat the request after Retry-After", RetryAfter: 5 * time.Second}
	case errors.Is(err, context.Canceled):
		return Problem{Status: StatusClientGone, Code: "CLIENT_GONE", Detail: "the client disconnected"}
	}
	return Problem{Status: http.StatusInternalServerError, Code: "INTERNAL", Detail: "the request failed: give the operator of the gateway its requestId, which is in the log"}
}

// MediaType is the media type of RFC 9457.
const MediaType = "application/problem+json"
