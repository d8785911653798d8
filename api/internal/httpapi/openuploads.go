package httpapi

import (
	"math"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// uploadWaitLimit is how long an upload waits for the places of other companies until one
	// that is too slow is ended for it. An upload is not judged by less time either.
	uploadWaitLimit = 5 * time.Second
	// busyRate is the least rate in bytes per second that a company's only upload needs while
	// others wait: with it the largest form takes uploadTime.
	busyRate = float64(maxForm) / float64(uploadTime/time.Second)
)

// openUploads are the uploads that arrive. Without it four companies could keep all places with
// uploads that are only as fast as leastPace asks.
type openUploads struct {
	waitLimit time.Duration

	mu     sync.Mutex
	bodies map[*slowBody]uuid.UUID // whose they are
	cutAt  time.Time               // when the last one was ended
}

func newOpenUploads() *openUploads {
	return &openUploads{waitLimit: uploadWaitLimit, bodies: map[*slowBody]uuid.UUID{}}
}

// add counts an upload of the company until remove is called.
func (o *openUploads) add(company uuid.UUID, b *slowBody) (remove func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bodies[b] = company
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.bodies, b)
	}
}

// cutSlowest ends one upload. Of a company that receives two it is the slower one, however fast
// it is: of several such companies that with the slowest. Where no company has two, it is the
// slowest of those that are slower than busyRate. However many callers wait, it ends one in each
// waitLimit: each caller that waits calls it once in that time. A tenth less is enough, because
// the calls of one caller may be a little less than waitLimit apart.
func (o *openUploads) cutSlowest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if now.Sub(o.cutAt) < o.waitLimit*9/10 {
		return
	}
	if b := o.slowest(now); b != nil {
		b.cut()
		o.cutAt = now
	}
}

// slowest is the upload that cutSlowest ends, or nil. o.mu is held.
func (o *openUploads) slowest(now time.Time) (slowest *slowBody) {
	companies, several := o.byCompany()
	least := busyRate
	if several {
		least = math.Inf(1)
	}
	for _, bodies := range companies {
		if several && len(bodies) == 1 {
			continue
		}
		if b, rate := o.slower(bodies, now); b != nil && rate < least {
			slowest, least = b, rate
		}
	}
	return slowest
}

// byCompany is what arrives of each company, and whether one of them has several.
func (o *openUploads) byCompany() (companies map[uuid.UUID][]*slowBody, several bool) {
	companies = map[uuid.UUID][]*slowBody{}
	for b, company := range o.bodies {
		if !b.wasCut() {
			companies[company] = append(companies[company], b)
			several = several || len(companies[company]) > 1
		}
	}
	return companies, several
}

// slower is the slowest of a company's uploads, or nil as long as one of them is too young.
func (o *openUploads) slower(bodies []*slowBody, now time.Time) (slowest *slowBody, least float64) {
	for _, b := range bodies {
		bytes, waited := b.progress(now)
		if waited < o.waitLimit {
			return nil, 0
		}
		if rate := float64(bytes) / waited.Seconds(); slowest == nil || rate < least {
			slowest, least = b, rate
		}
	}
	return slowest, least
}
