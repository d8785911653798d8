package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

const (
	// quietTime is how long a client may send nothing, or take nothing, in the middle of
	// something large. The server's own minute is for requests as a whole, and half a
	// gigabyte takes a slow line longer.
	quietTime = 30 * time.Second
	// uploadTime is the most an upload may take, however slow: 512 MiB at 2.4 Mbit/s. With
	// the ingest after it, it stays well below the hour after which a file that no
	// mailing names is deleted.
	uploadTime = 30 * time.Minute
)

// slowBody is a request's body whose client has quietTime for each piece of it and
// uploadTime for all. It remembers the error it ended with, because the parsers above
// it wrap it in words that quote the body.
type slowBody struct {
	body    io.Reader
	control *http.ResponseController
	quiet   time.Duration
	until   time.Time // of the whole
	due     time.Time // the deadline that is set
	err     error
}

func newSlowBody(c *gin.Context, limit int64, quiet time.Duration) *slowBody {
	return &slowBody{
		body:    http.MaxBytesReader(c.Writer, c.Request.Body, limit),
		control: http.NewResponseController(c.Writer),
		quiet:   quiet,
		until:   time.Now().Add(uploadTime),
	}
}

func (b *slowBody) Read(p []byte) (int, error) {
	if err := b.prolong(); err != nil {
		return 0, err
	}
	n, err := b.body.Read(p)
	if err != nil {
		b.err = err
	}
	return n, err
}

// prolong moves the deadline; not for each read, of which there may be a million.
func (b *slowBody) prolong() error {
	now := time.Now()
	if b.due.Sub(now) > b.quiet*9/10 {
		return nil
	}
	b.due = now.Add(b.quiet)
	if b.due.After(b.until) {
		b.due = b.until
	}
	return ifSupported(b.control.SetReadDeadline(b.due))
}

// finish reads what is left, for a client that does not look for an answer before it
// has sent everything: cut off in the middle, it would never see why it was refused.
// From then on the client may be silent: a deadline would look as if it had left.
func (b *slowBody) finish() {
	if now := time.Now(); b.until.After(now.Add(b.quiet)) {
		b.until = now.Add(b.quiet)
		b.due = time.Time{}
	}
	if b.err == nil {
		_, _ = io.Copy(io.Discard, b)
	}
	_ = b.control.SetReadDeadline(time.Time{}) // the connection is of no more use if that fails
}

// takeTime lifts the server's limit on the time until the answer; allowAnswer gives
// the answer, or its next piece, a limit of its own.
func takeTime(c *gin.Context) error {
	return ifSupported(http.NewResponseController(c.Writer).SetWriteDeadline(time.Time{}))
}

func allowAnswer(c *gin.Context) {
	// A connection whose deadline cannot be set is one whose answer goes nowhere.
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(quietTime))
}

// ifSupported passes over a server that knows no deadlines, as in a benchmark.
func ifSupported(err error) error {
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return fmt.Errorf("set deadline: %w", err)
}
