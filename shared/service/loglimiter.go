package service

import (
	"maps"
	"sync"
	"time"
)

// mostCauses limits the causes that a LogLimiter distinguishes at a time.
const mostCauses = 100

// LogLimiter limits the log lines about what happens to each of many emails or endpoints for one cause, such as a missing key:
// one for the first, then one per failureLogInterval. The zero value is ready for use, by concurrent callers.
type LogLimiter struct {
	mu     sync.Mutex
	causes map[string]*limited
}

type limited struct {
	loggedAt time.Time
	omitted  int // calls since then
}

// Allow reports whether a line for the cause may be logged now, and how many were omitted since the last one, which the caller
// logs as the attribute omitted.
func (l *LogLimiter) Allow(cause string) (omitted int, allowed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	seen := l.find(cause, now)
	if !seen.loggedAt.IsZero() && now.Sub(seen.loggedAt) < failureLogInterval {
		seen.omitted++
		return 0, false
	}
	omitted = seen.omitted
	*seen = limited{loggedAt: now}
	return omitted, true
}

// find returns the state of the cause. If there are too many, those that cannot be told apart any more are one cause.
func (l *LogLimiter) find(cause string, now time.Time) *limited {
	if len(l.causes) >= mostCauses && l.causes[cause] == nil {
		maps.DeleteFunc(l.causes, func(_ string, c *limited) bool { return now.Sub(c.loggedAt) >= failureLogInterval })
		if len(l.causes) >= mostCauses {
			cause = "others"
		}
	}
	if l.causes == nil {
		l.causes = map[string]*limited{}
	}
	if l.causes[cause] == nil {
		l.causes[cause] = &limited{}
	}
	return l.causes[cause]
}
