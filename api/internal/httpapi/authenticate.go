package httpapi

import (
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/access"
)

// authenticate lets a request in, or not: a valid key, within its rate, of a company
// that is not suspended.
func (a *API) authenticate(c *gin.Context) error {
	v := visitOf(c)
	caller, err := a.directory.Authenticate(c.Request.Context(), credential(c.Request.Header))
	if err != nil {
		return err
	}
	v.caller = caller
	quota := a.limiter.Take(caller.KeyID, caller.RatePerSecond, caller.Burst)
	tellQuota(c.Writer.Header(), quota)
	if !quota.Allowed {
		return rateLimited(quota)
	}
	if caller.Suspended {
		return suspended
	}
	return nil
}

// credential is the key as it was sent. A bearer token wins over X-API-Key; another
// scheme may be a proxy's own and is passed over.
func credential(h http.Header) string {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return h.Get("X-API-Key")
}

// tellQuota sets the three headers of the IETF's RateLimit draft. They are set
// without canonical form, which would make them Ratelimit-Limit.
func tellQuota(h http.Header, q access.Quota) {
	if q.Limit == 0 {
		return
	}
	h["RateLimit-Limit"] = []string{strconv.Itoa(q.Limit)}
	h["RateLimit-Remaining"] = []string{strconv.Itoa(q.Remaining)}
	h["RateLimit-Reset"] = []string{strconv.Itoa(seconds(q.Reset))}
}

// seconds rounds up, so that nobody comes back too early.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// scope lets only keys with the scope pass.
func scope(name string) func(*gin.Context) error {
	return func(c *gin.Context) error {
		if !slices.Contains(visitOf(c).caller.Scopes, name) {
			return missingScope(name)
		}
		return nil
	}
}

// loopbackOnly lets callers of this machine pass. A request that a proxy of this
// machine hands on comes from elsewhere.
func loopbackOnly(c *gin.Context) error {
	host, _, err := net.SplitHostPort(c.Request.RemoteAddr)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		return metricsElsewhere
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if c.GetHeader(name) != "" {
			return metricsElsewhere
		}
	}
	return nil
}
