package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/gin-gonic/gin"

	"email-gateway/shared/email"
	"email-gateway/shared/telemetry"
)

var errPanic = errors.New("panic")

// rescue turns a panic into a 500 and logs its stack.
func (a *API) rescue(c *gin.Context) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(http.ErrAbortHandler)
		}
		a.log.Error("panic", telemetry.RequestID, visitOf(c).requestID, "path", c.FullPath(),
			"error", email.MaskText(fmt.Sprint(cause)), "stack", string(debug.Stack()))
		a.fail(c, errPanic)
	}()
	c.Next()
}
