package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/access"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/draft"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

// problem is an error response. Handlers return one, or an error that problemOf maps.
type problem struct {
	status     int
	code       string
	detail     string
	faults     []rules.Fault
	retryAfter time.Duration
	quota      *quotaProblem // for QUOTA_EXCEEDED
	// oldestCursor is for CURSOR_EXPIRED.
	oldestCursor string
}

// quotaProblem describes the quota that is used up.
type quotaProblem struct {
	Quota store.Quota `json:"quota"`
	Limit int64       `json:"limit"`
	Use   int64       `json:"use"`
	Reset *time.Time  `json:"reset"` // null = when objects are deleted or finish
}

func (p problem) Error() string { return p.code + ": " + p.detail }

// Codes used in several places.
const (
	codeValidationFailed  = "VALIDATION_FAILED"
	codeSenderNotAllowed  = draft.CodeSenderNotAllowed
	codeRecipientNotFound = email.CodeRecipientNotFound
	codeInvalidTemplate   = email.CodeInvalidTemplate
	codeQuotaExceeded     = "QUOTA_EXCEEDED"
)

// Problems that handlers and middlewares return.
var (
	noSuchRoute       = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "the API has no such path: see GET /openapi.yaml"}
	noSuchRecipient   = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no such recipient"}
	noSuchSuppression = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "the address is not suppressed for that reason"}
	noSuchEmail       = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no such email"}
	noSuchDeadLetter  = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no such dead letter"}
	noSuchReplay      = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no such replay"}

	nothingAbout  = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no email about this aggregate"}
	aggregateBusy = problem{status: http.StatusConflict, code: "AGGREGATE_IN_PROGRESS", detail: "an email of this aggregate and event type is being created, rescheduled or cancelled: repeat the request after Retry-After", retryAfter: time.Second}

	rowsBusy = problem{status: http.StatusConflict, code: "AGGREGATE_BUSY", detail: "other transactions have locked rows that this request changes, and too many requests of the company already wait for such locks: repeat the request after Retry-After", retryAfter: 2 * time.Second}

	tooManyReplays = problem{status: http.StatusTooManyRequests, code: "TOO_MANY_REPLAYS", detail: fmt.Sprintf("%d requests of the company to retry or discard dead letters are running: repeat this one when one of them has finished", store.MaxRunningReplays), retryAfter: 10 * time.Second}

	alreadyResolved = problem{status: http.StatusConflict, code: "ALREADY_RESOLVED", detail: "the dead letter has already been resolved differently; use GET to see how"}

	suspended = problem{status: http.StatusForbidden, code: "COMPANY_SUSPENDED", detail: "the company is suspended: ask the operator of the gateway"}

	bodyTooLarge = problem{status: http.StatusRequestEntityTooLarge, code: "BODY_TOO_LARGE", detail: fmt.Sprintf("the body is larger than %d bytes: html and text may have 524288 bytes each", maxBody)}
	notJSON      = problem{status: http.StatusUnsupportedMediaType, code: "UNSUPPORTED_MEDIA_TYPE", detail: "set the header Content-Type: application/json and send UTF-8, not compressed"}
	unreadable   = problem{status: http.StatusBadRequest, code: "UNREADABLE_BODY", detail: "the body ended early: repeat the request"}
	busy         = problem{status: http.StatusServiceUnavailable, code: "BUSY", detail: "too many large bodies at once: repeat the request after Retry-After", retryAfter: time.Second}
	bodyTooSlow  = problem{status: http.StatusRequestTimeout, code: "BODY_TOO_SLOW", detail: fmt.Sprintf("less than %d bytes of the body arrived within %.0f seconds, or the whole body took too long: repeat the request over a faster connection", minPace.bytes, minPace.each.Seconds())}
	// tooManyBodies is for limits of the company itself.
	tooManyBodies = problem{status: http.StatusTooManyRequests, code: "TOO_MANY_BODIES", detail: "the company sends too many large bodies at once: repeat the request after Retry-After", retryAfter: time.Second}

	// Without RabbitMQ, mailings and recipients would never be processed.
	bulkDisabled = problem{status: http.StatusServiceUnavailable, code: "BULK_DISABLED", detail: "this installation has no RabbitMQ, which carries mailings and recipients: RABBITMQ_URL must be set"}

	badIdempotencyKey = problem{status: http.StatusBadRequest, code: "INVALID_IDEMPOTENCY_KEY", detail: "Idempotency-Key must be one value of 1 to 255 printable ASCII characters"}
	keyReused         = problem{status: http.StatusUnprocessableEntity, code: "IDEMPOTENCY_KEY_REUSED", detail: "this Idempotency-Key was used with a different body in the last 72 hours: use a new key for a new request"}
	sameKeyInProgress = problem{status: http.StatusConflict, code: "IDEMPOTENCY_IN_PROGRESS", detail: "a request with this Idempotency-Key is in progress: repeat this one after Retry-After", retryAfter: time.Second}
)

// The problems of a missing or invalid key. They share one code, and none reveals whether a key
// with this id exists.
var (
	noKey        = problem{status: http.StatusUnauthorized, code: "UNAUTHORIZED", detail: "the request has no API key: send it as Authorization: Bearer, or as X-API-Key"}
	notBearer    = problem{status: http.StatusUnauthorized, code: "UNAUTHORIZED", detail: `the Authorization header has no Bearer token: write "Bearer", a space and the API key, or send the key alone as X-API-Key`}
	malformedKey = problem{status: http.StatusUnauthorized, code: "UNAUTHORIZED", detail: "the API key is malformed: it must be gw_<environment>_<id>_<secret>, without quotes"}
	wrongKey     = problem{status: http.StatusUnauthorized, code: "UNAUTHORIZED", detail: "the API key is not valid: it is unknown, revoked, or its secret is wrong; check which installation it belongs to"}
)

// wrongMethod lists the methods of the path.
func wrongMethod(method, allowed string) problem {
	return problem{status: http.StatusMethodNotAllowed, code: "METHOD_NOT_ALLOWED", detail: fmt.Sprintf("the path does not support %s, only %s", printableName(method), allowed)}
}

func missingScope(scope string) problem {
	return problem{status: http.StatusForbidden, code: "SCOPE_MISSING", detail: "the API key lacks the scope " + scope + ": ask the operator of the gateway for a key with this scope"}
}

func rateLimited(q access.Quota) problem {
	return problem{status: http.StatusTooManyRequests, code: "RATE_LIMITED", detail: "the API key has made too many requests: repeat this one after Retry-After", retryAfter: q.RetryAfter}
}

// canBeHeld lists the statuses in which an email can be changed.
const canBeHeld = "only PENDING, ENQUEUED and RETRY_SCHEDULED emails can be cancelled or rescheduled"

var expiredKey = problem{status: http.StatusUnauthorized, code: "KEY_EXPIRED", detail: "the API key has expired: ask the operator of the gateway for a new one"}

func otherNetwork(client string) problem {
	return problem{status: http.StatusForbidden, code: "NETWORK_NOT_ALLOWED", detail: "the API key is restricted to networks that do not include " + client + ""}
}

func tooManyWrongKeys(retry time.Duration) problem {
	return problem{status: http.StatusTooManyRequests, code: "TOO_MANY_WRONG_KEYS", detail: "too many requests from this address had an invalid API key; requests with a valid key are still accepted", retryAfter: retry}
}

// tooManyAtOnce: the company's own requests use all its slots.
var tooManyAtOnce = problem{
	status: http.StatusTooManyRequests, code: "RATE_LIMITED", detail: "the company has too many requests in progress: repeat this one after Retry-After", retryAfter: time.Second,
}

// allBusy: requests of other companies use all slots.
var allBusy = problem{
	status: http.StatusServiceUnavailable, code: "BUSY", detail: "too many requests of other companies at once: repeat the request after Retry-After", retryAfter: time.Second,
}

// quotaExceeded sets Retry-After to the reset of a daily quota.
func quotaExceeded(e *store.QuotaError) problem {
	p := problem{
		status: http.StatusTooManyRequests, code: codeQuotaExceeded,
		detail:     fmt.Sprintf("the company's quota %s would be exceeded: its limit is %d, %d are in use", e.Quota, e.Limit, e.Use),
		retryAfter: time.Minute,
		quota:      &quotaProblem{Quota: e.Quota, Limit: e.Limit, Use: e.Use, Reset: e.Reset},
	}
	if e.Reset != nil {
		p.detail += "; it resets at " + e.Reset.Format(time.RFC3339)
		p.retryAfter = max(time.Until(*e.Reset), time.Second)
	}
	return p
}

func cancelTooLate(s email.Status) problem {
	return problem{status: http.StatusConflict, code: "CANCEL_TOO_LATE", detail: fmt.Sprintf("the email is %s; %s", s, canBeHeld)}
}

func rescheduleTooLate(s email.Status) problem {
	return problem{status: http.StatusConflict, code: "RESCHEDULE_TOO_LATE", detail: fmt.Sprintf("the email is %s; %s", s, canBeHeld)}
}

func notReplayable(s email.Status) problem {
	return problem{status: http.StatusConflict, code: "NOT_REPLAYABLE", detail: fmt.Sprintf("the email is %s; only FAILED, EXPIRED and CANCELLED emails can be retried", s)}
}

func contentGone() problem {
	return problem{status: http.StatusConflict, code: "NOT_REPLAYABLE", detail: "the email's content has been deleted: send a new email"}
}

func replaced() problem {
	return problem{status: http.StatusConflict, code: "NOT_REPLAYABLE", detail: "another email of the same aggregate and event type replaced it"}
}

func deadLetterNotReplayable(reason string) problem {
	return problem{status: http.StatusConflict, code: "NOT_REPLAYABLE", detail: reason}
}

// acceptUnknown returns the id, so that the caller can look the email up once the database is
// back. With an Idempotency-Key it is safe to repeat the request.
func acceptUnknown(what, id string) problem {
	return problem{
		status: http.StatusServiceUnavailable, code: "ACCEPT_UNKNOWN", retryAfter: 5 * time.Second,
		detail: "the database did not confirm the commit; look up whether the " + what + " was accepted: its id is " + id,
	}
}

// recipientsUnknown: it is safe to repeat the request, because the same person is stored once.
func recipientsUnknown() problem {
	return problem{
		status: http.StatusServiceUnavailable, code: "ACCEPT_UNKNOWN", retryAfter: 5 * time.Second,
		detail: "the database did not confirm the commit; repeat the request: the same person is stored only once",
	}
}

// invalid is a well-formed request with invalid fields. If all faults have the same code of
// those that clients act on, it becomes the code of the problem.
func invalid(faults []rules.Fault) problem {
	p := problem{status: http.StatusUnprocessableEntity, code: codeValidationFailed, faults: faults}
	switch first := faults[0].Code; first {
	case codeSenderNotAllowed, codeRecipientNotFound, codeInvalidTemplate:
		p.code = first
	}
	for _, f := range faults {
		if f.Code != p.code {
			p.code = codeValidationFailed
		}
	}
	p.detail = summary(faults)
	return p
}

// summary counts the invalid fields, or the faults if all are about one field.
func summary(faults []rules.Fault) string {
	fields := map[string]bool{}
	for _, f := range faults {
		fields[f.Field] = true
	}
	switch {
	case len(faults) == 1:
		return sentence(faults[0])
	case len(faults) >= rules.MaxFaults:
		return fmt.Sprintf("%d fields are not valid; there may be more", len(fields))
	case len(fields) == 1:
		return fmt.Sprintf("%s has %d faults", faults[0].Field, len(faults))
	}
	return fmt.Sprintf("%d fields are not valid", len(fields))
}

// sentence formats a fault: the message continues after the field's name, unless it contains
// the name itself.
func sentence(f rules.Fault) string {
	if strings.HasPrefix(f.Message, "the "+f.Field+" ") {
		return f.Message
	}
	return f.Field + " " + f.Message
}

// statusClientGone is the status that nginx logs if the client disconnects before the response.
const statusClientGone = 499

// problemOf maps every error to a problem.
func problemOf(err error) problem {
	var known problem
	var syntax *strictjson.SyntaxError
	var over *store.QuotaError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &over):
		return quotaExceeded(over)
	case errors.As(err, &syntax):
		return problem{status: http.StatusBadRequest, code: "MALFORMED_JSON", detail: syntax.Error()}
	case errors.Is(err, store.ErrNotFound):
		return noSuchEmail
	case errors.Is(err, store.ErrAggregateBusy):
		return aggregateBusy
	case errors.Is(err, store.ErrInProgress):
		return sameKeyInProgress
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
	case errors.Is(err, errCompanyBusy), errors.Is(err, store.ErrTriesOfCompany):
		return tooManyAtOnce
	case errors.Is(err, errAllBusy), errors.Is(err, store.ErrTries):
		return allBusy
	case errors.Is(err, store.ErrUnreplicated):
		return problem{status: http.StatusServiceUnavailable, code: "DATABASE_UNAVAILABLE", detail: "no standby confirms commits of the database: repeat the request after Retry-After", retryAfter: 5 * time.Second}
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrUnknownOutcome),
		errors.Is(err, store.ErrNotMigrated), errors.Is(err, context.DeadlineExceeded):
		return problem{status: http.StatusServiceUnavailable, code: "DATABASE_UNAVAILABLE", detail: "the database cannot be reached: repeat the request after Retry-After", retryAfter: 5 * time.Second}
	case errors.Is(err, context.Canceled):
		return problem{status: statusClientGone, code: "CLIENT_GONE", detail: "the client disconnected"}
	}
	return problem{status: http.StatusInternalServerError, code: "INTERNAL", detail: "the request failed: give the operator of the gateway its requestId, which is in the log"}
}

// body is a problem as sent (RFC 9457).
type body struct {
	Type      string        `json:"type"`
	Title     string        `json:"title"`
	Status    int           `json:"status"`
	Detail    string        `json:"detail"`
	Code      string        `json:"code"`
	RequestID string        `json:"requestId"`
	Errors    []rules.Fault `json:"errors,omitempty"`
	*quotaProblem
	OldestCursor string `json:"oldestCursor,omitempty"`
}

// levelOf is the log level of a failed request. It is only a warning if the client disconnected,
// or the shutdown of the api interrupted the request.
func levelOf(ctx context.Context, err error) slog.Level {
	if errors.Is(ctx.Err(), context.Canceled) && (errors.Is(err, context.Canceled) || store.IsOutage(err)) {
		return slog.LevelWarn
	}
	return slog.LevelError
}

// fail responds with the error's problem and ends the request.
func (a *API) fail(c *gin.Context, err error) {
	p := problemOf(err)
	v := visitOf(c)
	if isUnsubscribe(c) && p.retryAfter > 0 {
		p.status = http.StatusServiceUnavailable // mail clients repeat a one-click unsubscribe after a 503
	}
	if p.quota != nil {
		a.measure.refusals.WithLabelValues(string(p.quota.Quota)).Inc()
	}
	if p.status >= http.StatusInternalServerError && !errors.Is(err, errPanic) {
		a.log.LogAttrs(c.Request.Context(), levelOf(c.Request.Context(), err), "request failed", append(v.logAttributes(),
			slog.String(telemetry.RequestID, v.requestID), slog.Int64(telemetry.DurationMS, time.Since(v.began).Milliseconds()),
			slog.String("path", c.FullPath()), slog.String("error", email.MaskText(err.Error())))...)
	}
	if c.Writer.Written() {
		c.Abort() // the response has started
		return
	}
	if p.status == http.StatusUnauthorized {
		c.Header("WWW-Authenticate", `Bearer realm="email-gateway"`)
	}
	if p.retryAfter > 0 {
		c.Header("Retry-After", strconv.Itoa(seconds(p.retryAfter)))
	}
	if isUnsubscribe(c) && showUnsubscribeProblem(c, p) {
		c.Abort()
		return
	}
	c.Header("Content-Type", typeProblem)
	c.AbortWithStatusJSON(p.status, body{
		Type: "about:blank", Title: http.StatusText(p.status), Status: p.status,
		Detail: p.detail, Code: p.code, RequestID: v.requestID, Errors: p.faults, quotaProblem: p.quota, OldestCursor: p.oldestCursor,
	})
}
