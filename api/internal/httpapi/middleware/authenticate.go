package middleware

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/access"
	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/shared/clientip"
	"email-gateway/shared/store/tenant"
)

// Authenticate accepts a request with a valid key within its rate limit, of a company that is
// not suspended. Its response is never cached: HTTP protects the responses to requests with Authorization, not those to
// requests with X-API-Key, and a shared cache would give them to other companies.
func (m *Middleware) Authenticate(c *gin.Context) error {
	v := reqctx.StateOf(c)
	c.Header("Cache-Control", "no-store")
	found := m.identify(c)
	caller, err := found.Caller, found.Err
	switch {
	case found.Retry > 0:
		return tooManyWrongKeys(found.Retry)
	case errors.Is(err, access.ErrNoKey) && c.GetHeader("Authorization") != "":
		return notBearer
	case err != nil:
		return err
	}
	v.Caller = caller
	if !mayCallFrom(caller, v.Client) {
		return otherNetwork(v.Client.String())
	}
	quota := m.limiter.Take(caller.KeyID, caller.RatePerSecond, caller.Burst)
	response.SetRateLimitHeaders(c.Writer.Header(), quota)
	if !quota.Allowed {
		return problem.RateLimited(quota)
	}
	if caller.Suspended {
		return suspended
	}
	return nil
}

// StillValid checks the key of an accepted request again, for requests that take long: before an
// upload is committed, and between the pieces of a download.
func (m *Middleware) StillValid(c *gin.Context) error {
	v := reqctx.StateOf(c)
	caller, err := m.directory.Recheck(c.Request.Context(), v.Caller)
	switch {
	case err != nil:
		return err
	case !mayCallFrom(caller, v.Client):
		return otherNetwork(v.Client.String())
	case caller.Suspended:
		return suspended
	}
	return nil
}

// mayCallFrom reports whether the key may be used from the address. Networks that cannot be
// parsed contain no address.
func mayCallFrom(caller *tenant.Caller, client netip.Addr) bool {
	if len(caller.Networks) == 0 {
		return true
	}
	networks, err := clientip.ParseNetworks(strings.Join(caller.Networks, ","))
	return err == nil && clientip.Contains(networks, client)
}

// identify checks the request's key, once, and counts a wrong one against the client's
// address. A valid key is accepted regardless of other requests from the same address.
func (m *Middleware) identify(c *gin.Context) *reqctx.Identity {
	v := reqctx.StateOf(c)
	if v.Identity == nil {
		v.Identity = &reqctx.Identity{}
		v.Identity.Caller, v.Identity.Err = m.directory.Authenticate(c.Request.Context(), credential(c.Request.Header))
		if errors.Is(v.Identity.Err, access.ErrUnknownKey) {
			v.Identity.Retry = m.guard.Wrong(v.Client)
		}
	}
	return v.Identity
}

// credential returns the key as sent: the bearer token or X-API-Key. Each of them may be meant for a proxy: if there are both,
// the bearer token is used only if it looks like a key of the gateway. Other schemes are ignored.
func credential(h http.Header) string {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	token, other := strings.TrimSpace(token), h.Get("X-API-Key")
	if strings.EqualFold(scheme, "Bearer") && (other == "" || strings.HasPrefix(token, apikey.Prefix)) {
		return token
	}
	return other
}

// RequireScope accepts only keys with the scope.
func RequireScope(name string) func(*gin.Context) error {
	return func(c *gin.Context) error {
		if !slices.Contains(reqctx.StateOf(c).Caller.Scopes, name) {
			return missingScope(name)
		}
		return nil
	}
}
