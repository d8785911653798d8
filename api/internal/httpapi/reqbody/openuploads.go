package reqbody

import (
	"math"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/mailing"
)

const (
	// MaxForm is the largest file with room for all other parts (bytes).
	MaxForm = mailing.MaxFile + 4<<20
	// UploadTime limits an upload: 512 MiB at 2.4 Mbit/s. Together with the ingestion it is well
	// below the hour after which a file without a mailing is deleted.
	UploadTime = 30 * time.Minute
	// uploadWaitLimit is how long an upload waits for a slot before the slowest upload of other
	// companies is aborted. The rate of an upload is measured over at least this time.
	uploadWaitLimit = 5 * time.Second
	// BusyRate is the minimum rate (bytes per second) of a company's only upload while others
	// wait: the largest form then takes UploadTime.
	BusyRate = float64(MaxForm) / float64(UploadTime/time.Second)
)

// OpenUploads are the uploads being received. Without it, four companies could occupy all slots
// with uploads at MinPace.
type OpenUploads struct {
	// WaitLimit is how long an upload waits for a slot before it calls CutSlowest.
	WaitLimit time.Duration

	mu     sync.Mutex
	bodies map[*SlowBody]uuid.UUID // the company of each
	cutAt  time.Time               // when the last one was aborted
}

// NewOpenUploads creates OpenUploads without uploads.
func NewOpenUploads() *OpenUploads {
	return &OpenUploads{WaitLimit: uploadWaitLimit, bodies: map[*SlowBody]uuid.UUID{}}
}

// Add registers an upload of the company until remove is called.
func (o *OpenUploads) Add(company uuid.UUID, b *SlowBody) (remove func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bodies[b] = company
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.bodies, b)
	}
}

// CutSlowest aborts one upload. If companies have several uploads, it aborts the slowest of
// theirs, whatever its rate. Otherwise it aborts the slowest upload below BusyRate. It aborts at
// most one upload per WaitLimit, however many callers wait: each calls it once in that time. A
// tenth less is enough, because the calls of one caller may be slightly less than WaitLimit
// apart.
func (o *OpenUploads) CutSlowest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if now.Sub(o.cutAt) < o.WaitLimit*9/10 {
		return
	}
	if b := o.slowest(now); b != nil {
		b.cut()
		o.cutAt = now
	}
}

// slowest returns the upload that CutSlowest aborts, or nil. o.mu must be held.
func (o *OpenUploads) slowest(now time.Time) (slowest *SlowBody) {
	companies, several := o.byCompany()
	least := BusyRate
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
func (o *OpenUploads) byCompany() (companies map[uuid.UUID][]*SlowBody, several bool) {
	companies = map[uuid.UUID][]*SlowBody{}
	for b, company := range o.bodies {
		if !b.WasCut() {
			companies[company] = append(companies[company], b)
			several = several || len(companies[company]) > 1
		}
	}
	return companies, several
}

// slower returns the slowest of a company's uploads, or nil if one is too new to be measured.
func (o *OpenUploads) slower(bodies []*SlowBody, now time.Time) (slowest *SlowBody, least float64) {
	for _, b := range bodies {
		bytes, waited := b.progress(now)
		if waited < o.WaitLimit {
			return nil, 0
		}
		if rate := float64(bytes) / waited.Seconds(); slowest == nil || rate < least {
			slowest, least = b, rate
		}
	}
	return slowest, least
}
