package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
)

const (
	// answerTime is how long a client may take nothing of a long answer.
	answerTime = 30 * time.Second
	// uploadTime is the most an upload may take, however slow: 512 MiB at 2.4 Mbit/s. With
	// the ingest after it, it stays well below the hour after which a file that no
	// mailing names is deleted.
	uploadTime = 30 * time.Minute
)

// pace is the minimum rate of a body: the client sends this many bytes, or the rest, in each interval.
// The time in which the gateway itself does not read does not count.
type pace struct {
	bytes int64
	each  time.Duration
}

var leastPace = pace{bytes: 64 << 10, each: 30 * time.Second}

// slowBody is a request's body whose client has to keep the pace, and so much time for all of
// it. It remembers the error it ended with, because the parsers above it wrap it in words that
// quote the body.
type slowBody struct {
	body    io.Reader
	control *http.ResponseController
	pace    pace
	until   time.Time     // of the whole
	due     time.Time     // the deadline that is set
	waited  time.Duration // for the bytes of this period
	got     int64         // of them
	err     error
	isCut   atomic.Bool
	recent  recentRate // for progress, which other goroutines call
}

// recentRate is what has arrived of a body in the last half to whole window of the time in which
// the gateway waited for it.
type recentRate struct {
	mu    sync.Mutex
	since time.Time // when the present wait began; zero = the gateway does not wait
	total arrival
	// The totals at the last two ends of half a window. The older one is where the measurement begins.
	half, begin arrival
}

// arrival is how many bytes arrived, and how long the gateway waited for them.
type arrival struct {
	bytes  int64
	waited time.Duration
}

// wait notes that a wait begins.
func (r *recentRate) wait(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = now
}

// arrived notes that the wait ended after took, with n bytes.
func (r *recentRate) arrived(n int64, took, window time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = time.Time{}
	r.total.bytes += n
	r.total.waited += took
	r.move(r.total, window)
}

// measure is the arrival since the window began, with the wait that goes on.
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

// move lets the window begin later once half of it has passed.
func (r *recentRate) move(total arrival, window time.Duration) {
	if total.waited-r.half.waited >= window/2 {
		r.begin, r.half = r.half, total
	}
}

func newSlowBody(c *gin.Context, limit int64, p pace, most time.Duration) *slowBody {
	return &slowBody{
		body:    http.MaxBytesReader(c.Writer, c.Request.Body, limit),
		control: http.NewResponseController(c.Writer),
		pace:    p,
		until:   time.Now().Add(most),
	}
}

func (b *slowBody) Read(p []byte) (int, error) {
	begun := time.Now()
	if err := b.prolong(begun); err != nil {
		b.err = err
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
		b.err = err
	}
	return n, err
}

// prolong moves the deadline; not for each read, of which there may be a million.
func (b *slowBody) prolong(now time.Time) error {
	due := now.Add(b.pace.each - b.waited)
	if due.After(b.until) {
		due = b.until
	}
	if early := due.Sub(b.due); early >= 0 && early < b.pace.each/32 {
		return nil
	}
	b.due = due.Add(b.pace.each / 32)
	err := ifSupported(b.control.SetReadDeadline(b.due))
	if b.isCut.Load() {
		return os.ErrDeadlineExceeded
	}
	return err
}

// progress is how many bytes have arrived in the last interval of the pace, and how long the
// gateway waited for them. Bytes that arrived fast before do not count.
func (b *slowBody) progress(now time.Time) (bytes int64, waited time.Duration) {
	latest := b.recent.measure(now, b.pace.each)
	return latest.bytes, latest.waited
}

// cut ends the body, from another goroutine.
func (b *slowBody) cut() {
	b.isCut.Store(true)
	// A connection whose deadline cannot be set ends by the one that it has.
	_ = b.control.SetReadDeadline(time.Unix(1, 0))
}

func (b *slowBody) wasCut() bool { return b.isCut.Load() }

// end lifts the deadline of a body that is read: it would look as if the client had left.
func (b *slowBody) end() {
	if !b.due.IsZero() && b.err != nil && errors.Is(b.err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{}) // the connection is of no more use if that fails
	}
}

// finish reads what is left, for a client that does not look for an answer before it
// has sent everything: cut off in the middle, it would never see why it was refused.
// From then on the client may be silent: a deadline would look as if it had left.
func (b *slowBody) finish() {
	if soon := time.Now().Add(b.pace.each); b.until.After(soon) {
		b.until = soon
	}
	if b.err == nil {
		_, _ = io.Copy(io.Discard, b)
	}
	_ = b.control.SetReadDeadline(time.Time{}) // the connection is of no more use if that fails
}

// hangUp ends the connection behind the answer of a request whose body has not come to its
// end. A client that is still sending would not see the answer if the connection were closed
// at once. net/http waits for half a second, but only behind a body that is too large, so it is
// told that this one is.
func hangUp(c *gin.Context) {
	w := http.ResponseWriter(c.Writer)
	if wrapped, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		w = wrapped.Unwrap()
	}
	_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1)) // always too large
}

// takeTime lifts the server's limit on the time until the answer; allowAnswer gives
// the answer, or its next piece, a limit of its own.
func takeTime(c *gin.Context) error {
	return ifSupported(http.NewResponseController(c.Writer).SetWriteDeadline(time.Time{}))
}

func allowAnswer(c *gin.Context) {
	// A connection whose deadline cannot be set is one whose answer goes nowhere.
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(answerTime))
}

// ifSupported passes over a server that knows no deadlines, as in a benchmark.
func ifSupported(err error) error {
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return fmt.Errorf("set deadline: %w", err)
}
