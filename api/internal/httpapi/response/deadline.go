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

// LiftWriteDeadline removes the server's write deadline, for a handler that waits before it reads the body: a client that
// sent Expect: 100-continue is answered then.
func LiftWriteDeadline(c *gin.Context) error {
	return IfSupported(http.NewResponseController(c.Writer).SetWriteDeadline(time.Time{}))
}

// ExtendWriteDeadline gives the next piece of a response time until it must be written.
func ExtendWriteDeadline(c *gin.Context) { setWriteDeadline(c.Writer, answerTime) }

// IfSupported ignores servers without deadlines, as in benchmarks.
func IfSupported(err error) error {
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return fmt.Errorf("set deadline: %w", err)
}
