package response

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqctx"
)

// Abort ends the handler and closes the connection of a response that has started, so that the client does not take an
// incomplete one for complete: without the last chunk and, after service.ResetOnClose, with a reset. The log and the metrics
// have the status of the error, or that of a client that left. If the response cannot be written because the client does not
// read it, they have the latter.
func Abort(c *gin.Context, err error, unwritable bool) {
	status := problem.Of(err).Status
	if unwritable || c.Request.Context().Err() != nil {
		status = problem.StatusClientGone
	}
	reqctx.StateOf(c).Aborted = status
	panic(http.ErrAbortHandler)
}
