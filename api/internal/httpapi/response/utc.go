package response

import (
	"time"
)

// InUTC returns a time as responses show it, nil for nil.
func InUTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	utc := t.UTC()
	return &utc
}
