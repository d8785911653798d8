package recipients

import (
	"net/http"
	"time"

	"email-gateway/api/internal/httpapi/problem"
)

// Problems of requests about recipients.
var noSuchRecipient = problem.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "there is no such recipient"}

// unknown: it is safe to repeat the request, because the same person is stored once.
func unknown() problem.Problem {
	return problem.Problem{
		Status: http.StatusServiceUnavailable, Code: "ACCEPT_UNKNOWN", RetryAfter: 5 * time.Second,
		Detail: "the database did not confirm the commit; repeat the request: the same person is stored only once",
	}
}
