package problem

import (
	"net/http"

	"email-gateway/api/internal/access"
)

// The problems of a missing or invalid key. They share one code, and none reveals whether a key
// with this id exists.
var (
	noKey        = Problem{Status: http.StatusUnauthorized, Code: "UNAUTHORIZED", Detail: "the request has no API key: send it as Authorization: Bearer, or as X-API-Key"}
	malformedKey = Problem{Status: http.StatusUnauthorized, Code: "UNAUTHORIZED", Detail: "the API key is malformed: it must be gw_<environment>_<id>_<secret>, without quotes"}
	wrongKey     = Problem{Status: http.StatusUnauthorized, Code: "UNAUTHORIZED", Detail: "the API key is not valid: it is unknown, revoked, or its secret is wrong; check which installation it belongs to"}
)

// RateLimited is the problem of a key that has made too many requests.
func RateLimited(q access.Quota) Problem {
	return Problem{Status: http.StatusTooManyRequests, Code: "RATE_LIMITED", Detail: "the API key has made too many requests: repeat this one after Retry-After", RetryAfter: q.RetryAfter}
}

var expiredKey = Problem{Status: http.StatusUnauthorized, Code: "KEY_EXPIRED", Detail: "the API key has expired: ask the operator of the gateway for a new one"}
