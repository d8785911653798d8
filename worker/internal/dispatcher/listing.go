package dispatcher

import (
	"context"
	"time"

	"email-gateway/shared/service"
	"email-gateway/shared/store/dispatch"
)

const (
	// listInterval is how often all lanes are listed. The loop checks listParts times per interval
	// whether a listing is due.
	listInterval = 30 * time.Second
	listParts    = 6
	// listPause bounds the load of listings: the next one starts after listPause times the duration of the last one, even if
	// that failed. While an old snapshot is open, a listing reads an index entry for each email that was sent since.
	listPause = 4
)

// request requests a listing, because there may be rows that no poll finds.
func (l *lanes) request() {
	l.lost = time.Now()
	signal(l.requests)
}

// list makes the full listing. It finds rows that no poll finds: those that were committed late, and those of lanes that opened
// without a wake-up. Feeders poll and take rows meanwhile.
func (l *lanes) list(ctx context.Context) (more bool, err error) {
	if err := service.Pause(ctx, time.Until(l.resume)); err != nil {
		return false, nil
	}
	if err := l.acquire(ctx); err != nil {
		return false, nil
	}
	recent := time.Since(l.listed) < l.interval-l.interval/listParts && l.listed.After(l.lost)
	l.release()
	if recent {
		return false, nil
	}
	start := time.Now()
	found, err := l.store.WaitingLanes(ctx)
	l.resume = time.Now().Add(listPause * time.Since(start))
	if err != nil {
		return false, err
	}
	if err := l.acquire(ctx); err != nil {
		return false, nil
	}
	defer l.release()
	l.replace(found, start)
	return false, nil
}

// replace stores a full listing. Results of polls that began later are kept.
func (l *lanes) replace(found dispatch.WaitingLanes, start time.Time) {
	if !l.startedAt.After(start) {
		l.breakerClosed = found.BreakerClosed
	}
	if l.newest.Before(start) {
		l.newest = start
	}
	l.listed = start
	if l.schedule.replace(found.Lanes, start) {
		signal(l.becameLive)
	}
}

// signal wakes a receiver, now or when it receives next.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default: // a signal is pending already
	}
}
