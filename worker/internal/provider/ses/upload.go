package ses

import (
	"errors"
	"io"
	"sync"
)

// upload is the body of a request of known length. It proves that a request was not sent as a whole: net/http can have
// sent only what it has read, and reads nothing after end. SES does not accept a part of a request: it has fewer bytes
// than its header says, and its signature is that of the whole body.
type upload struct {
	io.ReadCloser
	suspended func() bool // the machine was suspended until after the deadline of the call

	mu    sync.Mutex // net/http reads in a goroutine, which a call that has returned may leave behind
	left  int64      // bytes that were not read
	read  bool
	ended bool
}

var errEnded = errors.New("the call has ended")

func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.ended:
		return 0, errEnded
	case u.suspended():
		return 0, errSuspended
	}
	n, err := u.ReadCloser.Read(p)
	u.left -= int64(n)
	u.read = u.read || n > 0
	return n, err
}

// end makes further reads fail, and reports whether the whole body was read before, or a part of it.
func (u *upload) end() (complete, partial bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	return u.left <= 0, u.read && u.left > 0
}
