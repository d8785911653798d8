package reqbody

import (
	"fmt"
	"net/http"
	"time"

	"email-gateway/api/internal/httpapi/problem"
)

// Problems of receiving a body.
var (
	TooLarge   = problem.Problem{Status: http.StatusRequestEntityTooLarge, Code: "BODY_TOO_LARGE", Detail: fmt.Sprintf("the body is larger than %d bytes: html and text may have 524288 bytes each", MaxBody)}
	notJSON    = problem.Problem{Status: http.StatusUnsupportedMediaType, Code: "UNSUPPORTED_MEDIA_TYPE", Detail: "set the header Content-Type: application/json and send UTF-8, not compressed"}
	Unreadable = problem.Problem{Status: http.StatusBadRequest, Code: "UNREADABLE_BODY", Detail: "the body ended early: repeat the request"}
	TooSlow    = problem.Problem{Status: http.StatusRequestTimeout, Code: "BODY_TOO_SLOW", Detail: fmt.Sprintf("less than %d bytes of the body arrived within %.0f seconds, or the whole body took too long: repeat the request over a faster connection", MinPace.bytes, MinPace.each.Seconds())}
	// tooManyBodies is for limits of the company itself.
	tooManyBodies = problem.Problem{Status: http.StatusTooManyRequests, Code: "TOO_MANY_BODIES", Detail: "the company sends too many large bodies at once: repeat the request after Retry-After", RetryAfter: time.Second}
)
