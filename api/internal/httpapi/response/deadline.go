package response

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// answerTime is the write timeout for each piece of a long response.
const answerTime = 30 * time.Second

// LiftWriteDeadline removes the server's write deadline.
func LiftWriteDeadline(c *gin.Context) error {
	return IfSupported(http.NewResponseController(c.Writer).SetWriteDeadline(time.Time{}))
}

// ExtendWriteDeadline gives the response, or its next piece, time until it must be written.
func ExtendWriteDeadline(c *gin.Context) {
	// If the deadline cannot be set, the connection is broken.
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(answerTime))
}

// IfSupported ignores servers without deadlines, as in benchmarks.
func IfSupported(err error) error {
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return fmt.Errorf("set deadline: %w", err)
}
