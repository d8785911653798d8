package health

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/reqctx"
)

// readiness is the response of GET /readyz. While the process drains, service.Drain answers instead.
type readiness struct {
	Status   string     `json:"status"` // ok or unavailable
	Database partHealth `json:"database"`
}

// liveness is the response of GET /livez, in the format of the dispatcher and the worker, so
// that one check works for all three.
type liveness struct {
	Status string `json:"status"`
}

// ShowLive reports that the process responds, independent of its dependencies.
func ShowLive(c *gin.Context) {
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, liveness{Status: "ok"})
}

// ShowReady reports whether the api can handle requests: it needs Postgres and commits that go
// through, and nothing else.
func (hc *Check) ShowReady(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), timeout)
	defer cancel()
	status, answer := http.StatusOK, readiness{Status: "ok", Database: partHealth{connected}}
	_, err := reqctx.WithDeadline(ctx, hc.confirm)
	if err == nil {
		_, err = reqctx.WithDeadline(ctx, hc.statuses) // reads a table that may not exist yet
	}
	if err != nil {
		status, answer = http.StatusServiceUnavailable, readiness{Status: "unavailable", Database: databasePart(err)}
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(status, answer)
}
