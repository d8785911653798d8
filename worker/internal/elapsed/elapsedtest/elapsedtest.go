// Package elapsedtest makes times as a process sees them after its machine was suspended.
package elapsedtest

import (
	"time"
	"unsafe"
)

// BeforeSuspension returns a time of before a suspension of that length that has just ended: by the wall clock it is longer ago
// than by the monotonic one.
func BeforeSuspension(at time.Time, length time.Duration) time.Time {
	at = at.Add(-length)
	(*struct {
		wall      uint64
		monotonic int64
		location  *time.Location
	})(unsafe.Pointer(&at)).monotonic += int64(length)
	return at
}
