package middleware

import (
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/rules"
)

// Start starts every request: it sets the request id, the client's own or a new one, which
// appears in the response, the log and the email.
func (m *Middleware) Start(c *gin.Context) {
	v := &reqctx.State{Began: time.Now(), RequestID: c.GetHeader("X-Request-Id"), Client: m.proxies.Of(c.Request)}
	if rules.CheckRequestID(v.RequestID) != nil {
		v.RequestID = "req-" + uuid.NewString()
	}
	c.Set(reqctx.StateKey, v)
	c.Header("X-Request-Id", v.RequestID)
	c.Next()
	v.LeaveBody(c)
}
