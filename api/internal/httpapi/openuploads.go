package httpapi

import (
	"sync"
	"time"
)

const (
	// uploadWaitLimit is how long an upload waits for the places of other companies until one
	// that is too slow is ended for it. An upload is not judged by less time either.
	uploadWaitLimit = 5 * time.Second
	// busyRate is the least rate in bytes per second that an upload needs while others wait:
	// with it the largest form takes uploadTime.
	busyRate = float64(maxForm) / float64(uploadTime/time.Second)
)

// openUploads are the uploads that arrive. Without it four companies could keep all places with
// uploads that are only as fast as leastPace asks.
type openUploads struct {
	waitLimit time.Duration

	mu     sync.Mutex
	bodies map[*slowBody]struct{}
	cutAt  time.Time // when the last one was ended
}

func newOpenUploads() *openUploads {
	return &openUploads{waitLimit: uploadWaitLimit, bodies: map[*slowBody]struct{}{}}
}

// add counts an upload until remove is called.
func (o *openUploads) add(b *slowBody) (remove func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bodies[b] = struct{}{}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.bodies, b)
	}
}

// cutSlowest ends the slowest of the uploads that are slower than busyRate. However many callers
// wait, it ends one in each waitLimit: each caller that waits calls it once in that time. A tenth
// less is enough, because the calls of one caller may be a little less than waitLimit apart.
func (o *openUploads) cutSlowest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if now.Sub(o.cutAt) < o.waitLimit*9/10 {
		return
	}
	var slowest *slowBody
	least := busyRate
	for b := range o.bodies {
		bytes, waited := b.progress(now)
		if waited < o.waitLimit || b.wasCut() {
			continue
		}
		if rate := float64(bytes) / waited.Seconds(); rate < least {
			slowest, least = b, rate
		}
	}
	if slowest != nil {
		slowest.cut()
		o.cutAt = now
	}
}
