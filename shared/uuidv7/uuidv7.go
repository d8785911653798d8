// Package uuidv7 makes the ids of rows. A UUIDv7 begins with the time, and the order of ids decides: the newest statement
// about a person wins, a deletion voids what was accepted before it, and retention, quotas and the months of the logs are
// ranges of ids. So all programs make them by one clock, Postgres's: ids by the clocks of several hosts are not in the order
// of acceptance.
package uuidv7

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// process makes the ids of this process.
var process = NewSource(time.Now)

// Process returns the source that New, Now and Series use.
func Process() *Source { return process }

// New returns an id of the current time by Postgres's clock.
func New() uuid.UUID { return process.New() }

// Now returns the time that New uses.
func Now() time.Time { return process.Now() }

// First returns the smallest id of t, to the millisecond.
func First(t time.Time) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], uint64(t.UnixMilli())<<16) //nolint:gosec // our time is after 1970
	return id
}

// Time returns the time that a UUIDv7 begins with, to the millisecond. The created_at of a request's rows equals it, so that
// lists can be filtered by date with ids.
func Time(id uuid.UUID) time.Time { return time.Unix(id.Time().UnixTime()).UTC() }

// Series makes ids that always increase, for the rows of one request whose order matters, by one goroutine. The zero value is
// ready for use.
type Series struct{ last int64 }

// New returns an id that is greater than the series' ids before it.
func (s *Series) New() uuid.UUID {
	s.last = max(s.last+1, process.next())
	return idAt(s.last)
}

// Source makes ids by a clock that Follow sets. Each id is greater than the one before it, unless the clock was set back by
// more than maxAhead. That ids differ does not depend on the clock: 62 of their bits are random. A Source is safe for
// concurrent use, and no caller waits for another.
type Source struct {
	host    func() time.Time
	reading atomic.Pointer[reading]
	last    atomic.Int64 // of the newest id, in ticks
}

// reading is the time of Postgres at a time of the host. What has passed since is counted by the host's monotonic clock, which
// does not jump when the host's time is set.
type reading struct{ host, postgres time.Time }

// NewSource returns a source that uses the host's clock until Follow succeeds.
func NewSource(host func() time.Time) *Source { return &Source{host: host} }

// Now returns the time of the source's clock.
func (s *Source) Now() time.Time { return s.at(s.host()) }

func (s *Source) at(host time.Time) time.Time {
	if r := s.reading.Load(); r != nil {
		return r.postgres.Add(host.Sub(r.host))
	}
	return host.Round(0)
}

// Follow sets the clock to the time that ask returns, that of Postgres during the call. A clock that differs from it by at most
// half the duration of the call may be right, and is kept: a slow answer does not make it worse.
func (s *Source) Follow(ask func() (time.Time, error)) error {
	start := s.host()
	postgres, err := ask()
	if err != nil {
		return err
	}
	half := s.host().Sub(start) / 2
	middle := start.Add(half)
	if clock := s.at(middle); postgres.Sub(clock).Abs() <= half {
		postgres = clock
	}
	s.reading.Store(&reading{host: middle, postgres: postgres})
	return nil
}

// New returns an id of the current time.
func (s *Source) New() uuid.UUID { return idAt(s.next()) }

const (
	// A tick is 1/4096 ms: the version of an id is followed by 12 bits.
	ticksPerMilli = 1 << 12
	// maxAhead is how far the newest id may be ahead of the clock. The next id is then one tick later. If it is further
	// ahead, a clock that was wrong has been set back, and ids do not stay wrong until the time has caught up.
	maxAhead = 1000 * ticksPerMilli
)

func (s *Source) next() int64 {
	for {
		last := s.last.Load() // before the clock, so that an id by an older reading of the clock does not replace it
		now := ticks(s.Now())
		if ahead := last - now; ahead >= 0 && ahead <= maxAhead {
			now = last + 1
		}
		if s.last.CompareAndSwap(last, now) {
			return now
		}
	}
}

func ticks(t time.Time) int64 {
	return t.UnixMilli()*ticksPerMilli + int64(t.Nanosecond())%1e6*ticksPerMilli/1e6
}

func idAt(ticks int64) (id uuid.UUID) {
	const version, variant = 0x7000, 0x80
	binary.BigEndian.PutUint64(id[:8], uint64(ticks/ticksPerMilli)<<16|version|uint64(ticks%ticksPerMilli)) //nolint:gosec // our time is after 1970
	_, _ = rand.Read(id[8:])                                                                                // it always succeeds
	id[8] = variant | id[8]&0x3f
	return id
}
