package response

import (
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/transfer"
)

// paceBytes is how many bytes of a download, or the rest, the client must receive in each
// answerTime. Time in which the gateway does not write does not count.
const paceBytes = 64 << 10

// Download is the body of a response that is written in pieces while the client receives it. It
// may be aborted for others that wait.
type Download struct {
	body    io.Writer
	control *http.ResponseController
	due     time.Time     // the deadline currently set
	waited  time.Duration // for the bytes of this interval
	sent    int64         // bytes of this interval
	aborted atomic.Bool
	// recent counts the time between two writes too: a client that reads as fast as the gateway
	// writes would otherwise never be measured.
	recent    transfer.Rate
	startedAt time.Time // of the current piece
}

// NewDownload returns the body of the response to a request.
func NewDownload(c *gin.Context) *Download {
	d := &Download{body: c.Writer, control: http.NewResponseController(c.Writer), startedAt: time.Now()}
	d.recent.Wait(d.startedAt)
	return d
}

// Write fails with os.ErrDeadlineExceeded if the client is too slow, or the download was aborted.
func (d *Download) Write(p []byte) (int, error) {
	start := time.Now()
	if err := d.extendDeadline(start); err != nil {
		return 0, err
	}
	n, err := d.body.Write(p)
	now := time.Now()
	d.recent.Moved(int64(n), now.Sub(d.startedAt), answerTime)
	d.recent.Wait(now)
	d.startedAt = now
	d.sent += int64(n)
	if d.waited += now.Sub(start); d.sent >= paceBytes {
		d.sent, d.waited = 0, 0
	}
	return n, err
}

// extendDeadline extends the deadline; not for each write, of which there may be a million.
func (d *Download) extendDeadline(now time.Time) error {
	due := now.Add(answerTime - d.waited)
	if early := due.Sub(d.due); early < 0 || early >= answerTime/32 {
		d.due = due.Add(answerTime / 32)
		if err := IfSupported(d.control.SetWriteDeadline(d.due)); err != nil {
			return err
		}
	}
	if d.aborted.Load() { // possibly before the deadline was extended
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Progress returns the bytes that the client received in the last answerTime, and that time.
func (d *Download) Progress(now time.Time) (bytes int64, waited time.Duration) {
	return d.recent.Measure(now, answerTime)
}

// Abort aborts the download; it may be called from another goroutine.
func (d *Download) Abort() {
	d.aborted.Store(true)
	// If the deadline cannot be set, the earlier one of the connection remains.
	_ = d.control.SetWriteDeadline(time.Unix(1, 0))
}

// Aborted reports whether the gateway aborted the download to make room for others.
func (d *Download) Aborted() bool { return d.aborted.Load() }
