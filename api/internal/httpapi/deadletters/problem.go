package deadletters

import (
	"fmt"
	"net/http"
	"time"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/shared/store/deadletter"
)

// Problems of requests about dead letters.
var (
	noSuchDeadLetter = problem.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "there is no such dead letter"}
	noSuchReplay     = problem.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "there is no such replay"}
	tooManyReplays   = problem.Problem{Status: http.StatusTooManyRequests, Code: "TOO_MANY_REPLAYS", Detail: fmt.Sprintf("%d bulk retries and discards of the company are in progress, which is the maximum: repeat the request when one has finished", deadletter.MaxRunningReplays), RetryAfter: 10 * time.Second}
	alreadyResolved  = problem.Problem{Status: http.StatusConflict, Code: "ALREADY_RESOLVED", Detail: "the dead letter has already been resolved in another way: GET shows how"}
)

func notReplayable(reason string) problem.Problem {
	return problem.Problem{Status: http.StatusConflict, Code: "NOT_REPLAYABLE", Detail: reason}
}
