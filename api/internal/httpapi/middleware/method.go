package middleware

import (
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
)

// rememberLiterals stores the methods of the paths without a parameter.
func (m *Middleware) rememberLiterals(routes gin.RoutesInfo) {
	methods := map[string][]string{}
	for _, route := range routes {
		if !strings.ContainsAny(route.Path, ":*") {
			methods[route.Path] = append(methods[route.Path], route.Method)
		}
	}
	m.literals = make(map[string]string, len(methods))
	for path, of := range methods {
		slices.Sort(of)
		m.literals[path] = strings.Join(of, ", ")
	}
}

// refuseMethod answers 405 if gin matches a literal path with a parameterized one because only
// that has the method: GET /v1/email/send is not an email with the id "send".
func (m *Middleware) refuseMethod(c *gin.Context) {
	if !strings.Contains(c.FullPath(), ":") {
		return
	}
	if allowed := m.literals[c.Request.URL.Path]; allowed != "" {
		c.Header("Allow", allowed)
		m.Answer(func(c *gin.Context) error { return wrongMethod(c.Request.Method, allowed) })(c)
	}
}
