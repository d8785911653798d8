package httpapi

import "net/http"

// Problems of stored files.
var (
	noSuchFile  = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no such file"}
	notFileBody = problem{
		status: http.StatusUnsupportedMediaType, code: "UNSUPPORTED_MEDIA_TYPE",
		detail: "the body must be the file itself, not a form and not compressed: set the header Content-Type: application/octet-stream",
	}
	emptyFile = problem{status: http.StatusUnprocessableEntity, code: "EMPTY_FILE", detail: "the file has no content"}
)
