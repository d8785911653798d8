package maintenance

import "time"

const (
	// boundMargin is how far before the earliest deadline found last a scan begins.
	boundMargin = time.Minute
	// fullScanPause bounds the load of scans without a bound: the pause before the next one is fullScanPause times the
	// duration of the last one, at most maxFullScanPause.
	fullScanPause    = 20
	maxFullScanPause = 5 * time.Minute
)

// scanBound paces scans of the emails in one status, which an index has in the order of their deadlines. While an old snapshot is
// open in Postgres, the index keeps the entries of emails that have left the status, one for each email that was sent. Scans
// therefore begin at the earliest deadline that the last one found. Scans without a bound find emails whose deadline is earlier than
// that of all others. Where they take little time, all scans are without a bound. A failed scan without a bound counts only if an
// earlier one has found a bound: otherwise no email would be found during the pause.
type scanBound struct {
	earliest time.Time // zero = unknown
	scanned  time.Time // when the last scan began
	full     time.Time // when the next scan without a bound is due
}

// scan calls read, which returns the earliest deadline that it found from since on, zero if none. A zero since is no bound. If the last
// scan without a bound found no email, scan does nothing until the next one is due.
func (b *scanBound) scan(read func(since time.Time) (earliest time.Time, err error)) error {
	begun := time.Now()
	var since time.Time
	if begun.Before(b.full) {
		if b.earliest.IsZero() {
			return nil
		}
		since = b.earliest.Add(-boundMargin)
	}
	earliest, err := read(since)
	if since.IsZero() && (err == nil || !b.earliest.IsZero()) {
		b.full = time.Now().Add(min(fullScanPause*time.Since(begun), maxFullScanPause))
	}
	if err != nil {
		return err
	}
	switch {
	case !earliest.IsZero():
		b.earliest = earliest
	case !b.earliest.IsZero(): // emails that enter the status later have later deadlines
		b.earliest = b.earliest.Add(begun.Sub(b.scanned))
	}
	b.scanned = begun
	return nil
}
