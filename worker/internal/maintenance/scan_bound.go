package maintenance

import "time"

const (
	// boundMargin is how far before the last earliest deadline a scan begins.
	boundMargin = time.Minute
	// fullScanPause bounds the load of scans without a bound: the pause before the next one is fullScanPause times the
	// duration of the last one, at most maxFullScanPause.
	fullScanPause    = 20
	maxFullScanPause = 5 * time.Minute
)

// scanBound paces scans of the emails in one status by an index that orders them by deadline. While an old snapshot is open in
// Postgres, the index keeps the entries of emails that have left the status, one for each email that was sent. Scans therefore
// begin at the earliest deadline that the last scan found.
//
// Scans without a bound find emails whose deadline is earlier than that. If they take little time, all scans are without a
// bound. A failed scan without a bound counts only if an earlier scan has found an email: otherwise no email would be found
// during the pause.
type scanBound struct {
	earliest time.Time // zero = unknown
	scanned  time.Time // when the last scan began
	full     time.Time // when the next scan without a bound is due
}

// scan calls read, which reads the emails with a deadline from since on and returns their earliest deadline, zero if there are
// none. A zero since means no bound. Until a scan has found an email, scan does nothing between two scans without a bound.
func (b *scanBound) scan(read func(since time.Time) (earliest time.Time, err error)) error {
	start := time.Now()
	var since time.Time
	if start.Before(b.full) {
		if b.earliest.IsZero() {
			return nil
		}
		since = b.earliest.Add(-boundMargin)
	}
	earliest, err := read(since)
	if since.IsZero() && (err == nil || !b.earliest.IsZero()) {
		b.full = time.Now().Add(min(fullScanPause*time.Since(start), maxFullScanPause))
	}
	if err != nil {
		return err
	}
	switch {
	case !earliest.IsZero():
		b.earliest = earliest
	case !b.earliest.IsZero(): // emails that enter the status later have later deadlines
		b.earliest = b.earliest.Add(start.Sub(b.scanned))
	}
	b.scanned = start
	return nil
}
