package middleware

import (
	"fmt"
	"net/http"
	"time"

	"email-gateway/api/internal/httpapi/problem"
)

// Problems that the middlewares return.
var (
	noSuchRoute = problem.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "the API has no such path: see GET /openapi.yaml"}
	suspended   = problem.Problem{Status: http.StatusForbidden, Code: "COMPANY_SUSPENDED", Detail: "the company is suspended: ask the operator of the gateway"}
)

// notBearer is one of the problems of a missing or invalid key, which share a code.
var notBearer = problem.Problem{Status: http.StatusUnauthorized, Code: "UNAUTHORIZED", Detail: `the Authorization header has no Bearer token: write "Bearer", a space and the API key, or send the key alone as X-API-Key`}

// wrongMethod lists the methods of the path.
func wrongMethod(method, allowed string) problem.Problem {
	return problem.Problem{Status: http.StatusMethodNotAllowed, Code: "METHOD_NOT_ALLOWED", Detail: fmt.Sprintf("the path does not support %s, only %s", problem.PrintableName(method), allowed)}
}

func missingScope(scope string) problem.Problem {
	return problem.Problem{Status: http.StatusForbidden, Code: "SCOPE_MISSING", Detail: "the API key lacks the scope " + scope + ": ask the operator of the gateway for a key with this scope"}
}

func otherNetwork(client string) problem.Problem {
	return problem.Problem{Status: http.StatusForbidden, Code: "NETWORK_NOT_ALLOWED", Detail: "the API key is restricted to networks that do not include " + client + ""}
}

func tooManyWrongKeys(retry time.Duration) problem.Problem {
	return problem.Problem{Status: http.StatusTooManyRequests, Code: "TOO_MANY_WRONG_KEYS", Detail: "too many requests from this address had an invalid API key; requests with a valid key are still accepted", RetryAfter: retry}
}
