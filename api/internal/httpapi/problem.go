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

// problem is an answer that is not what the caller asked for. Handlers return one,
// or an error that problemOf knows.
type problem struct {
	status     int
	code       string
	detail     string
	faults     []rules.Fault
	retryAfter time.Duration
}

func (p problem) Error() string { return p.code + ": " + p.detail }

// Codes that more than one place speaks of.
const (
	codeValidationFailed  = "VALIDATION_FAILED"
	codeSenderNotAllowed  = draft.CodeSenderNotAllowed
	codeRecipientNotFound = email.CodeRecipientNotFound
	codeInvalidTemplate   = email.CodeInvalidTemplate
)

// What handlers and middlewares decide themselves.
var (
	noSuchRoute       = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is nothing at this path"}
	noSuchRecipient   = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no such recipient"}
	noSuchSuppression = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "the address is not suppressed for that reason"}
	noSuchEmail       = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no such email"}
	noSuchLetter      = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no such dead letter"}
	noSuchReplay      = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no such replay"}
	wrongMethod       = problem{status: http.StatusMethodNotAllowed, code: "METHOD_NOT_ALLOWED", detail: "the Allow header names the methods of this path"}
	metricsElsewhere  = problem{status: http.StatusForbidden, code: "LOOPBACK_ONLY", detail: "metrics are shown to callers of the same machine"}

	nothingAbout  = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no email about this aggregate"}
	aggregateBusy = problem{status: http.StatusConflict, code: "AGGREGATE_IN_PROGRESS", detail: "an email of this aggregate and event type is being written, moved or cancelled", retryAfter: time.Second}

	alreadyResolved = problem{status: http.StatusConflict, code: "ALREADY_RESOLVED", detail: "the dead letter is resolved in another way"}

	suspended = problem{status: http.StatusForbidden, code: "COMPANY_SUSPENDED", detail: "the company is suspended"}

	bodyTooLarge = problem{status: http.StatusRequestEntityTooLarge, code: "BODY_TOO_LARGE", detail: fmt.Sprintf("the body is larger than %d bytes", maxBody)}
	notJSON      = problem{status: http.StatusUnsupportedMediaType, code: "UNSUPPORTED_MEDIA_TYPE", detail: "send application/json in UTF-8, not compressed"}
	unreadable   = problem{status: http.StatusBadRequest, code: "UNREADABLE_BODY", detail: "the body ended early or came too slowly"}
	busy         = problem{status: http.StatusServiceUnavailable, code: "BUSY", detail: "too many large bodies at once", retryAfter: time.Second}

	// Without RabbitMQ nothing would ever carry what comes in bulk.
	bulkDisabled = problem{status: http.StatusServiceUnavailable, code: "BULK_DISABLED", detail: "this installation has no RabbitMQ, which carries mailings and recipients: RABBITMQ_URL must be set"}

	badIdempotencyKey = problem{status: http.StatusBadRequest, code: "INVALID_IDEMPOTENCY_KEY", detail: "Idempotency-Key must be one value of 1 to 255 printable ASCII characters"}
	keyReused         = problem{status: http.StatusUnprocessableEntity, code: "IDEMPOTENCY_KEY_REUSED", detail: "this Idempotency-Key was used with another body"}
	twinUnderWay      = problem{status: http.StatusConflict, code: "IDEMPOTENCY_IN_PROGRESS", detail: "a request with this Idempotency-Key is under way", retryAfter: time.Second}
)

func missingScope(scope string) problem {
	return problem{status: http.StatusForbidden, code: "SCOPE_MISSING", detail: "the API key lacks the scope " + scope}
}

func rateLimited(q access.Quota) problem {
	return problem{status: http.StatusTooManyRequests, code: "RATE_LIMITED", detail: "the API key has made too many requests", retryAfter: q.RetryAfter}
}

func cancelTooLate(s email.Status) problem {
	return problem{status: http.StatusConflict, code: "CANCEL_TOO_LATE", detail: fmt.Sprintf("the email is %s", s)}
}

func rescheduleTooLate(s email.Status) problem {
	return problem{status: http.StatusConflict, code: "RESCHEDULE_TOO_LATE", detail: fmt.Sprintf("the email is %s", s)}
}

func notReplayable(s email.Status) problem {
	return problem{status: http.StatusConflict, code: "NOT_REPLAYABLE", detail: fmt.Sprintf("the email is %s; only FAILED, EXPIRED and CANCELLED ones can be sent again", s)}
}

func contentGone() problem {
	return problem{status: http.StatusConflict, code: "NOT_REPLAYABLE", detail: "the email's content is not kept any more"}
}

func replaced() problem {
	return problem{status: http.StatusConflict, code: "NOT_REPLAYABLE", detail: "another email of its aggregate and event type has taken its place"}
}

func letterNotReplayable(reason string) problem {
	return problem{status: http.StatusConflict, code: "NOT_REPLAYABLE", detail: reason}
}

// acceptUnknown names the id: the caller can look the email up when the database is
// back, and an Idempotency-Key makes it safe to send again.
func acceptUnknown(what, id string) problem {
	return problem{
		status: http.StatusServiceUnavailable, code: "ACCEPT_UNKNOWN", retryAfter: 5 * time.Second,
		detail: "the database did not confirm; whether the " + what + " was accepted can be looked up as " + id,
	}
}

// recipientsUnknown: what is not certain may be handed in again, since the same person
// is written down once.
func recipientsUnknown() problem {
	return problem{
		status: http.StatusServiceUnavailable, code: "ACCEPT_UNKNOWN", retryAfter: 5 * time.Second,
		detail: "the database did not confirm; hand the recipients in again, the same person is written down once",
	}
}

// invalid is a request that was understood and is wrong in some fields. Faults that
// all have one of the codes a caller may want to act on make it the problem's own.
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
	p.detail = fmt.Sprintf("%d fields are not valid", len(faults))
	if len(faults) == 1 {
		p.detail = sentence(faults[0])
	}
	if len(faults) >= rules.MaxFaults {
		p.detail = fmt.Sprintf("%d fields are not valid; there may be more", len(faults))
	}
	return p
}

// sentence is a fault in words: a message begins where the field's name ends, unless it
// names the field itself.
func sentence(f rules.Fault) string {
	if strings.HasPrefix(f.Message, "the "+f.Field+" ") {
		return f.Message
	}
	return f.Field + " " + f.Message
}

// statusClientGone is what nginx logs for a client that left before its answer.
const statusClientGone = 499

// problemOf maps every error to its answer.
func problemOf(err error) problem {
	var known problem
	var syntax *strictjson.SyntaxError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &syntax):
		return problem{status: http.StatusBadRequest, code: "MALFORMED_JSON", detail: syntax.Error()}
	case errors.Is(err, store.ErrNotFound):
		return noSuchEmail
	case errors.Is(err, store.ErrAggregateBusy):
		return aggregateBusy
	case errors.Is(err, store.ErrInProgress):
		return twinUnderWay
	case errors.Is(err, access.ErrUnknownKey):
		return problem{status: http.StatusUnauthorized, code: "UNAUTHORIZED", detail: "send a valid API key as Authorization: Bearer or X-API-Key"}
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrUnknownOutcome),
		errors.Is(err, store.ErrNotMigrated), errors.Is(err, context.DeadlineExceeded):
		return problem{status: http.StatusServiceUnavailable, code: "DATABASE_UNAVAILABLE", detail: "the database cannot be reached", retryAfter: 5 * time.Second}
	case errors.Is(err, context.Canceled):
		return problem{status: statusClientGone, code: "CLIENT_GONE", detail: "the client left"}
	}
	return problem{status: http.StatusInternalServerError, code: "INTERNAL", detail: "the request failed; its id is in the log"}
}

// body is a problem on the wire (RFC 9457).
type body struct {
	Type      string        `json:"type"`
	Title     string        `json:"title"`
	Status    int           `json:"status"`
	Detail    string        `json:"detail"`
	Code      string        `json:"code"`
	RequestID string        `json:"requestId"`
	Errors    []rules.Fault `json:"errors,omitempty"`
}

// levelOf is the level at which a failed request is logged. It is no error when the client
// left, or the stop of the api cut the request off, and the database gave no answer for that.
func levelOf(ctx context.Context, err error) slog.Level {
	if errors.Is(ctx.Err(), context.Canceled) && (errors.Is(err, context.Canceled) || store.IsOutage(err)) {
		return slog.LevelWarn
	}
	return slog.LevelError
}

// fail answers with the error's problem and ends the request.
func (a *API) fail(c *gin.Context, err error) {
	p := problemOf(err)
	v := visitOf(c)
	if p.status >= http.StatusInternalServerError && !errors.Is(err, errPanic) {
		a.log.Log(c.Request.Context(), levelOf(c.Request.Context(), err), "request failed", telemetry.RequestID, v.requestID, "path", c.FullPath(), "error", email.MaskText(err.Error()))
	}
	if c.Writer.Written() {
		c.Abort() // too late to say anything else
		return
	}
	if p.status == http.StatusUnauthorized {
		c.Header("WWW-Authenticate", `Bearer realm="email-gateway"`)
	}
	if p.retryAfter > 0 {
		c.Header("Retry-After", strconv.Itoa(seconds(p.retryAfter)))
	}
	c.Header("Content-Type", "application/problem+json")
	c.AbortWithStatusJSON(p.status, body{
		Type: "about:blank", Title: http.StatusText(p.status), Status: p.status,
		Detail: p.detail, Code: p.code, RequestID: v.requestID, Errors: p.faults,
	})
}
