package suppressions

import (
	"net/http"

	"email-gateway/api/internal/httpapi/problem"
)

// Problems of requests about suppressions.
var noSuchSuppression = problem.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "the address is not suppressed for that reason"}
