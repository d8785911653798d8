package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/email"
	"email-gateway/shared/telemetry"
)

var errPanic = errors.New("panic")

// rescue turns a panic into a 500 and logs its stack.
func (m *Middleware) rescue(c *gin.Context) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			if v := reqctx.StateOf(c); v.Aborted == 0 {
				v.Aborted = http.StatusInternalServerError
			}
			panic(http.ErrAbortHandler)
		}
		m.log.Error("panic", telemetry.RequestID, reqctx.StateOf(c).RequestID, "path", c.FullPath(),
			"error", email.MaskText(fmt.Sprint(cause)), "stack", string(debug.Stack()))
		m.fail(c, errPanic)
	}()
	c.Next()
}
