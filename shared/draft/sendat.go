package draft

import (
	"time"

	"email-gateway/shared/rules"
)

// clockTolerance is how far the clock of an api's host may be ahead: a day, as a clock that is set to local time is off by hours.
// Whether a time has passed is decided by Postgres's clock, so that such a host sends no email early; only times that have passed
// by any clock become the zero time here.
const clockTolerance = 24 * time.Hour

// SendAt parses the field sendAt, which must be within a year. The zero time, and one that has passed, mean now.
func SendAt(text string, now time.Time, f *rules.Faults) time.Time {
	at, err := rules.ParseTime(text)
	if err != nil {
		f.Add("sendAt", rules.CodeInvalidTime, err.Error())
		return time.Time{}
	}
	return Due(at, now, f)
}

// Due is SendAt for a parsed time.
func Due(at, now time.Time, f *rules.Faults) time.Time {
	switch {
	case at.After(now.AddDate(1, 0, 0)):
		f.Add("sendAt", rules.CodeOutOfRange, "must be within a year")
	case at.After(now.Add(-clockTolerance)):
		return at.UTC()
	}
	return time.Time{}
}
