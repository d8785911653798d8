package accept

import (
	"net/http"
	"time"

	"email-gateway/api/internal/httpapi/problem"
)

// Problems of the header Idempotency-Key.
var (
	badIdempotencyKey = problem.Problem{Status: http.StatusBadRequest, Code: "INVALID_IDEMPOTENCY_KEY", Detail: "Idempotency-Key must be one value of 1 to 255 printable ASCII characters"}
	keyReused         = problem.Problem{Status: http.StatusUnprocessableEntity, Code: "IDEMPOTENCY_KEY_REUSED", Detail: "this Idempotency-Key was used with a different body in the last 72 hours: use a new key for a new request"}
)

// keyNotSupported says how to find out whether the request was processed.
var keyNotSupported = problem.Problem{
	Status: http.StatusBadRequest, Code: "IDEMPOTENCY_KEY_NOT_SUPPORTED",
	Detail: "this request creates something new each time and does not support the header Idempotency-Key: leave the header out, and do not repeat the request automatically if there is no response",
}

// Unknown returns the id, so that the caller can look the email up once the database is
// back. With an Idempotency-Key it is safe to repeat the request.
func Unknown(what, id string) problem.Problem {
	return problem.Problem{
		Status: http.StatusServiceUnavailable, Code: "ACCEPT_UNKNOWN", RetryAfter: 5 * time.Second,
		Detail: "the database did not confirm the commit; look up whether the " + what + " was accepted: its id is " + id,
	}
}
