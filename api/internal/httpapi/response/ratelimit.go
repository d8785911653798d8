package response

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"email-gateway/api/internal/access"
)

// SetRateLimitHeaders sets the three headers of the IETF RateLimit draft. They are set without
// canonicalization, which would produce Ratelimit-Limit.
func SetRateLimitHeaders(h http.Header, q access.Quota) {
	if q.Limit == 0 {
		return
	}
	h["RateLimit-Limit"] = []string{strconv.Itoa(q.Limit)}
	h["RateLimit-Remaining"] = []string{strconv.Itoa(q.Remaining)}
	h["RateLimit-Reset"] = []string{strconv.Itoa(Seconds(q.Reset))}
}

// Seconds rounds up, so that clients do not retry too early.
func Seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
