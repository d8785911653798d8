package response

import (
	"strconv"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/reqctx"
)

// Accepted sends a response that is encoded already, with the Location of the created object.
func Accepted(c *gin.Context, status int, answer []byte) {
	if location := reqctx.StateOf(c).Location; location != "" {
		c.Header("Location", location)
	}
	c.Header("Content-Length", strconv.Itoa(len(answer))) // net/http sets it for short responses only
	c.Data(status, "application/json", answer)
}
