package httpapi

import (
	"math"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// uploadWaitLimit is how long an upload waits for a slot before the slowest upload of other
	// companies is aborted. The rate of an upload is measured over at least this time.
	uploadWaitLimit = 5 * time.Second
	// busyRate is the minimum rate (bytes per second) of a company's only upload while others
	// wait: the largest form then takes uploadTime.
	busyRate = float64(maxForm) / float64(uploadTime/time.Second)
)

// openUploads are the uploads being received. Without it, four companies could occupy all slots
// with uploads at minPace.
type openUploads struct {
	waitLimit time.Duration

	mu     sync.Mutex
	bodies map[*slowBody]uuid.UUID // the company of each
	cutAt  time.Time               // when the last one was aborted
}

func newOpenUploads() *openUploads {
	return &openUploads{waitLimit: uploadWaitLimit, bodies: map[*slowBody]uuid.UUID{}}
}

// add registers an upload of the company until remove is called.
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

// cutSlowest aborts one upload. If companies have several uploads, it aborts the slowest of
// theirs, whatever its rate. Otherwise it aborts the slowest upload below busyRate. It aborts at
// most one upload per waitLimit, however many callers wait: each calls it once in that time. A
// tenth less is enough, because the calls of one caller may be slightly less than waitLimit
// apart.
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

// slowest returns the upload that cutSlowest aborts, or nil. o.mu must be held.
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

// byCompany groups the uploads by company, and reports whether a company has several.
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

// slower returns the slowest of a company's uploads, or nil if one is too new to be measured.
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
