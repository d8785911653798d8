package files

import (
	"net/http"

	"email-gateway/api/internal/httpapi/problem"
)

// Problems of stored files.
var (
	noSuchFile  = problem.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "there is no such file"}
	notFileBody = problem.Problem{
		Status: http.StatusUnsupportedMediaType, Code: "UNSUPPORTED_MEDIA_TYPE",
		Detail: "the body must be the file itself, not a form and not compressed: set the header Content-Type: application/octet-stream",
	}
	emptyFile = problem.Problem{Status: http.StatusUnprocessableEntity, Code: "EMPTY_FILE", Detail: "the file has no content"}
)
