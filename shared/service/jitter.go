package service

import (
	"math/rand/v2"
	"time"
)

// Jitter returns d, extended by a random part of that fraction of d, so that what failed at the same time is not repeated at the
// same time.
func Jitter(d time.Duration, fraction float64) time.Duration {
	return d + time.Duration(rand.Float64()*fraction*float64(d))
}
