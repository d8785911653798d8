package reqbody

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/httpapi/transfer"
)

// Pace is the minimum rate of a body: the client must send this many bytes, or the rest, in each
// interval. Time in which the gateway does not read does not count.
type Pace struct {
	bytes int64
	each  time.Duration
}

// MinPace is the minimum rate of all bodies.
var MinPace = Pace{bytes: 64 << 10, each: 30 * time.Second}

// SlowBody is a request body whose client must keep the pace and a total time limit. It keeps
// the error it ended with, because the parsers above wrap it in messages that quote the body.
type SlowBody struct {
	body    io.Reader
	control *http.ResponseController
	pace    Pace
	until   time.Time     // deadline of the whole body
	due     time.Time     // the deadline currently set
	waited  time.Duration // for the bytes of this interval
	got     int64         // bytes of this interval
	Err     error         // the one it ended with
	aborted atomic.Bool
	recent  transfer.Rate // for Progress, which is called by other goroutines
}

// NewSlowBody returns the body of a request. It may have limit bytes and take most to arrive.
func NewSlowBody(c *gin.Context, limit int64, p Pace, most time.Duration) *SlowBody {
	b := &SlowBody{
		body:    http.MaxBytesReader(c.Writer, c.Request.Body, limit),
		control: http.NewResponseController(c.Writer),
		pace:    p,
		until:   time.Now().Add(most),
	}
	reqctx.StateOf(c).BodyWait = b.recent.Waited
	return b
}

// Read reads from the body. It fails with os.ErrDeadlineExceeded if the client is too slow.
func (b *SlowBody) Read(p []byte) (int, error) {
	start := time.Now()
	if err := b.extendDeadline(start); err != nil {
		b.Err = err
		return 0, err
	}
	b.recent.Wait(start)
	n, err := b.body.Read(p)
	took := time.Since(start)
	b.recent.Moved(int64(n), took, b.pace.each)
	b.got += int64(n)
	if b.waited += took; b.got >= b.pace.bytes {
		b.got, b.waited = 0, 0
	}
	if err != nil {
		b.Err = err
	}
	return n, err
}

// extendDeadline extends the deadline; not for each read, of which there may be a million.
func (b *SlowBody) extendDeadline(now time.Time) error {
	due := now.Add(b.pace.each - b.waited)
	if due.After(b.until) {
		due = b.until
	}
	if early := due.Sub(b.due); early >= 0 && early < b.pace.each/32 {
		return nil
	}
	b.due = due.Add(b.pace.each / 32)
	err := response.IfSupported(b.control.SetReadDeadline(b.due))
	if b.aborted.Load() {
		return os.ErrDeadlineExceeded
	}
	return err
}

// Progress returns the bytes that arrived in the last interval of the pace and how long the
// gateway waited for them. Earlier bytes do not count.
func (b *SlowBody) Progress(now time.Time) (bytes int64, waited time.Duration) {
	return b.recent.Measure(now, b.pace.each)
}

// Abort aborts the body; it may be called from another goroutine.
func (b *SlowBody) Abort() {
	b.aborted.Store(true)
	// If the deadline cannot be set, the earlier one of the connection remains.
	_ = b.control.SetReadDeadline(time.Unix(1, 0))
}

// Aborted reports whether the gateway aborted the body to make room for others.
func (b *SlowBody) Aborted() bool { return b.aborted.Load() }

// end removes the deadline of a complete body; an expired one would look like a disconnected client.
func (b *SlowBody) end() {
	if !b.due.IsZero() && b.Err != nil && errors.Is(b.Err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{}) // if this fails, the connection is unusable
	}
}

// Finish reads the rest of the body, for clients that read the response only after sending
// everything: aborted in the middle, they would never see why the request was rejected. Then it
// removes the deadline; an expired one would look like a disconnected client.
func (b *SlowBody) Finish() {
	if soon := time.Now().Add(b.pace.each); b.until.After(soon) {
		b.until = soon
	}
	if b.Err == nil {
		_, _ = io.Copy(io.Discard, b)
	}
	_ = b.control.SetReadDeadline(time.Time{}) // if this fails, the connection is unusable
}

// CloseAfterResponse closes the connection after the response to a request whose body was not fully read. If
// the connection were closed immediately, a client that is still sending would not see the
// response. net/http delays the close by half a second only for bodies that are too large, so
// this marks the body as too large.
func CloseAfterResponse(c *gin.Context) {
	w := http.ResponseWriter(c.Writer)
	for {
		wrapped, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = wrapped.Unwrap()
	}
	_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1)) // always too large
}
