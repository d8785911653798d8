package reputation

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rule names a rate with its thresholds.
type Rule string

// The rules. A rule's window is the period in which the emails were sent.
const (
	Complaints1h  Rule = "complaints_1h"
	Complaints24h Rule = "complaints_24h"
	Bounces1h     Rule = "bounces_1h"
	Bounces24h    Rule = "bounces_24h"
)

// Rules returns all rules in the order in which they are evaluated.
func Rules() []Rule { return []Rule{Complaints1h, Complaints24h, Bounces1h, Bounces24h} }

// Window returns the length of the rule's window.
func (r Rule) Window() time.Duration {
	if r == Complaints1h || r == Bounces1h {
		return time.Hour
	}
	return 24 * time.Hour
}

// Rate is a rate in parts per million.
type Rate int64

const wholeRate Rate = 1_000_000

// Percent returns the rate in percent.
func (r Rate) Percent() float64 { return float64(r) / 10_000 }

// String returns the rate in percent, without the percent sign.
func (r Rate) String() string { return strconv.FormatFloat(r.Percent(), 'f', -1, 64) }

// Thresholds are the thresholds of a rule. Their text form is WARN,PAUSE,SENT,EVENTS with rates in
// percent, such as 0.5,1,200,5.
type Thresholds struct {
	Warn  Rate `db:"warn_ppm"`
	Pause Rate `db:"pause_ppm"`
	// The rate counts only if at least MinSent emails were sent, and at least MinEvents of them bounced or
	// caused a complaint.
	MinSent   int `db:"min_sent"`
	MinEvents int `db:"min_events"`
}

var errThresholds = errors.New("must be WARN,PAUSE,SENT,EVENTS: two rates in percent, greater than 0, at most 100 and with at most 4 decimals, the first not above the second, and two whole numbers from 1 to 2147483647, such as 0.5,1,200,5")

// UnmarshalText parses thresholds.
func (t *Thresholds) UnmarshalText(text []byte) error {
	words := strings.Split(string(text), ",")
	if len(words) != 4 {
		return errThresholds
	}
	var parsed Thresholds
	for i, rate := range []*Rate{&parsed.Warn, &parsed.Pause} {
		percent, err := strconv.ParseFloat(strings.TrimSpace(words[i]), 64)
		millionths := math.Round(percent * 10_000)
		if err != nil || math.IsNaN(percent) || percent <= 0 || percent > 100 || math.Abs(percent*10_000-millionths) > 1e-6 {
			return errThresholds
		}
		*rate = Rate(millionths)
	}
	for i, number := range []*int{&parsed.MinSent, &parsed.MinEvents} {
		n, err := strconv.ParseInt(strings.TrimSpace(words[i+2]), 10, 32)
		if err != nil || n < 1 {
			return errThresholds
		}
		*number = int(n)
	}
	if err := parsed.check(); err != nil {
		return err
	}
	*t = parsed
	return nil
}

// MarshalText is the reverse of UnmarshalText.
func (t Thresholds) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

func (t Thresholds) String() string {
	return fmt.Sprintf("%s,%s,%d,%d", t.Warn, t.Pause, t.MinSent, t.MinEvents)
}

func (t Thresholds) check() error {
	if t.Warn < 1 || t.Pause < t.Warn || t.Pause > wholeRate || t.MinSent < 1 || t.MinEvents < 1 || t.MinSent > math.MaxInt32 || t.MinEvents > math.MaxInt32 {
		return errThresholds
	}
	return nil
}
