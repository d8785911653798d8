package httpapi

import (
	"errors"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/access"
	"email-gateway/shared/clientip"
	"email-gateway/shared/store"
)

// authenticate accepts a request with a valid key within its rate limit, of a company that is
// not suspended.
func (a *API) authenticate(c *gin.Context) error {
	v := visitOf(c)
	found := a.identify(c)
	caller, err := found.caller, found.err
	switch {
	case found.retry > 0:
		return tooManyWrongKeys(found.retry)
	case errors.Is(err, access.ErrNoKey) && c.GetHeader("Authorization") != "":
		return notBearer
	case err != nil:
		return err
	}
	v.caller = caller
	if !mayCallFrom(caller, v.client) {
		return otherNetwork(v.client.String())
	}
	quota := a.limiter.Take(caller.KeyID, caller.RatePerSecond, caller.Burst)
	setRateLimitHeaders(c.Writer.Header(), quota)
	if !quota.Allowed {
		return rateLimited(quota)
	}
	if caller.Suspended {
		return suspended
	}
	return nil
}

// mayCallFrom reports whether the key may be used from the address. Networks that cannot be
// parsed contain no address.
func mayCallFrom(caller *store.Caller, client netip.Addr) bool {
	if len(caller.Networks) == 0 {
		return true
	}
	networks, err := clientip.ParseNetworks(strings.Join(caller.Networks, ","))
	return err == nil && clientip.Contains(networks, client)
}

// identity is the result of checking a request's key. retry > 0: the client's address has
// sent too many wrong keys.
type identity struct {
	caller *store.Caller
	err    error
	retry  time.Duration
}

// identify checks the request's key, once, and counts a wrong one against the client's
// address. A valid key is accepted regardless of other requests from the same address.
func (a *API) identify(c *gin.Context) *identity {
	v := visitOf(c)
	if v.identity == nil {
		v.identity = &identity{}
		v.identity.caller, v.identity.err = a.directory.Authenticate(c.Request.Context(), credential(c.Request.Header))
		if errors.Is(v.identity.err, access.ErrUnknownKey) {
			v.identity.retry = a.guard.Wrong(v.client)
		}
	}
	return v.identity
}

// credential returns the key as sent. A bearer token takes precedence over X-API-Key; other
// schemes are ignored, since they may be meant for a proxy.
func credential(h http.Header) string {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return h.Get("X-API-Key")
}

// setRateLimitHeaders sets the three headers of the IETF RateLimit draft. They are set without
// canonicalization, which would produce Ratelimit-Limit.
func setRateLimitHeaders(h http.Header, q access.Quota) {
	if q.Limit == 0 {
		return
	}
	h["RateLimit-Limit"] = []string{strconv.Itoa(q.Limit)}
	h["RateLimit-Remaining"] = []string{strconv.Itoa(q.Remaining)}
	h["RateLimit-Reset"] = []string{strconv.Itoa(seconds(q.Reset))}
}

// seconds rounds up, so that clients do not retry too early.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// scope accepts only keys with the scope.
func scope(name string) func(*gin.Context) error {
	return func(c *gin.Context) error {
		if !slices.Contains(visitOf(c).caller.Scopes, name) {
			return missingScope(name)
		}
		return nil
	}
}
