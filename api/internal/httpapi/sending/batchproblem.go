package sending

import (
	"fmt"
	"net/http"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqbody"
)

// BatchTooLarge is the problem of a batch whose body is larger than reqbody.MaxBatch.
var BatchTooLarge = problem.Problem{
	Status: http.StatusRequestEntityTooLarge, Code: "BODY_TOO_LARGE",
	Detail: fmt.Sprintf("the body is larger than %d bytes: send several batches, and store attachments with POST /v1/files", reqbody.MaxBatch),
}

var batchContentTooLarge = problem.Problem{
	Status: http.StatusRequestEntityTooLarge, Code: "BODY_TOO_LARGE",
	Detail: fmt.Sprintf("the emails made from templates have more than %d bytes of html and text together: send several batches", reqbody.MaxBatch),
}
