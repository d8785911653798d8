package reqbody

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/response"
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
	isCut   atomic.Bool
	recent  recentRate // for progress, which is called by other goroutines
}

// recentRate measures what arrived of a body in the last half to whole window of waiting time.
type recentRate struct {
	mu    sync.Mutex
	since time.Time // start of the current wait; zero = not waiting
	total arrival
	// The totals at the last two half-window boundaries. The measurement starts at the older one.
	half, begin arrival
}

// arrival is how many bytes arrived and how long the gateway waited for them.
type arrival struct {
	bytes  int64
	waited time.Duration
}

// wait records the start of a wait.
func (r *recentRate) wait(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = now
}

// arrived records the end of a wait of the given duration, with n bytes.
func (r *recentRate) arrived(n int64, took, window time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = time.Time{}
	r.total.bytes += n
	r.total.waited += took
	r.move(r.total, window)
}

// measure returns the arrival since the start of the window, including the current wait.
func (r *recentRate) measure(now time.Time, window time.Duration) arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	total := r.total
	if !r.since.IsZero() {
		total.waited += now.Sub(r.since)
	}
	r.move(total, window)
	return arrival{total.bytes - r.begin.bytes, total.waited - r.begin.waited}
}

// move advances the window once half of it has passed.
func (r *recentRate) move(total arrival, window time.Duration) {
	if total.waited-r.half.waited >= window/2 {
		r.begin, r.half = r.half, total
	}
}

// NewSlowBody returns the body of a request. It may have limit bytes and take most to arrive.
func NewSlowBody(c *gin.Context, limit int64, p Pace, most time.Duration) *SlowBody {
	return &SlowBody{
		body:    http.MaxBytesReader(c.Writer, c.Request.Body, limit),
		control: http.NewResponseController(c.Writer),
		pace:    p,
		until:   time.Now().Add(most),
	}
}

// Read reads from the body. It fails with os.ErrDeadlineExceeded if the client is too slow.
func (b *SlowBody) Read(p []byte) (int, error) {
	begun := time.Now()
	if err := b.extendDeadline(begun); err != nil {
		b.Err = err
		return 0, err
	}
	b.recent.wait(begun)
	n, err := b.body.Read(p)
	took := time.Since(begun)
	b.recent.arrived(int64(n), took, b.pace.each)
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
	if b.isCut.Load() {
		return os.ErrDeadlineExceeded
	}
	return err
}

// progress returns the bytes that arrived in the last interval of the pace and how long the
// gateway waited for them. Earlier bytes do not count.
func (b *SlowBody) progress(now time.Time) (bytes int64, waited time.Duration) {
	latest := b.recent.measure(now, b.pace.each)
	return latest.bytes, latest.waited
}

// cut aborts the body; it may be called from another goroutine.
func (b *SlowBody) cut() {
	b.isCut.Store(true)
	// If the deadline cannot be set, the connection ends by its current one.
	_ = b.control.SetReadDeadline(time.Unix(1, 0))
}

// WasCut reports whether the gateway aborted the body to make room for others.
func (b *SlowBody) WasCut() bool { return b.isCut.Load() }

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
	if wrapped, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		w = wrapped.Unwrap()
	}
	_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1)) // always too large
}
