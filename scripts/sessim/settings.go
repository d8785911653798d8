package sessim

import (
	"fmt"
	"math"
	"time"
)

// Settings is the state of the simulated account.
type Settings struct {
	// MaxSendRate is the rate that GetAccount reports, in recipients per second. With EnforceRate
	// requests beyond it are refused, with a burst of one second.
	MaxSendRate float64 `json:"maxSendRate"`
	EnforceRate bool    `json:"enforceRate"`

	// DailyQuota is the maximum number of recipients within 24 hours; 0 means unlimited.
	DailyQuota int `json:"dailyQuota"`

	// LatencyMS is the time between the decision about a request and its response.
	LatencyMS int64 `json:"latencyMs"`

	// Paused and Suspended refuse all mail as SES does for the whole account. Unavailable makes
	// every call return a 503.
	Paused      bool `json:"paused"`
	Suspended   bool `json:"suspended"`
	Unavailable bool `json:"unavailable"`
	// Review makes GetAccount report that the account is under review. Mail is accepted.
	Review bool `json:"review"`

	// GetAccount is that operation's response: "ok" (or empty), "404" or "403".
	GetAccount string `json:"getAccount"`
}

const (
	accountOK       = "ok"
	accountNotFound = "404"
	accountDenied   = "403"
)

func (st Settings) validate() error {
	switch st.GetAccount {
	case "", accountOK, accountNotFound, accountDenied:
	default:
		return fmt.Errorf("set settings: getAccount is %q, not ok, 404 or 403", st.GetAccount)
	}
	if st.MaxSendRate < 0 || st.DailyQuota < 0 || st.LatencyMS < 0 {
		return fmt.Errorf("set settings: numbers must not be negative")
	}
	return nil
}

// Settings returns the settings in force.
func (s *Server) Settings() Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.account.settings
}

// SetSettings replaces all settings; start from Settings to change one.
func (s *Server) SetSettings(st Settings) error {
	return s.changeSettings(func(current *Settings) error {
		*current = st
		return nil
	})
}

// changeSettings calls change with a copy, which replaces the settings if it is valid.
func (s *Server) changeSettings(change func(*Settings) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.account.settings
	if err := change(&st); err != nil {
		return err
	}
	if err := st.validate(); err != nil {
		return err
	}
	if st.GetAccount == "" {
		st.GetAccount = accountOK
	}
	s.account.settings = st
	return nil
}

// rateLimit is a token bucket that holds one second's worth.
type rateLimit struct {
	tokens float64
	filled time.Time
}

// take reports whether the rate allows n more recipients now.
func (l *rateLimit) take(now time.Time, perSecond, n float64) bool {
	size := math.Max(perSecond, 1) // below 1/s one mail must still be allowed
	if l.filled.IsZero() {
		l.tokens = size
	} else if elapsed := now.Sub(l.filled).Seconds(); elapsed > 0 {
		l.tokens += elapsed * perSecond
	}
	l.filled = now
	l.tokens = math.Min(l.tokens, size)
	if l.tokens < math.Min(n, size) { // a mail with more recipients than the rate needs a full bucket
		return false
	}
	l.tokens -= n
	return true
}

// rollingDay counts recipients over the last 24 hours, to the minute.
type rollingDay struct {
	minutes [24 * 60]int
	newest  int64 // minutes since 1970
	total   int
}

func (d *rollingDay) sum(now time.Time) int {
	minute := now.Unix() / 60
	for steps := 0; d.newest < minute && steps < len(d.minutes); steps++ {
		d.newest++
		slot := &d.minutes[d.newest%int64(len(d.minutes))]
		d.total -= *slot
		*slot = 0
	}
	d.newest = max(d.newest, minute)
	return d.total
}

func (d *rollingDay) add(now time.Time, recipients int) {
	d.total = d.sum(now) + recipients
	d.minutes[d.newest%int64(len(d.minutes))] += recipients
}
