package accept

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/shared/store"
)

// ReplayInstead returns the stored response of a request that is rejected now (refusal) but was
// accepted the first time: since then the sender's domain may have been removed, the HTML
// rules tightened, or a quota used up. Only rejected requests cause the query.
func (cm *Committer) ReplayInstead(c *gin.Context, g *Key, refusal error) error {
	if g == nil {
		return refusal
	}
	if p := problem.Of(refusal); p.Status != http.StatusUnprocessableEntity && p.Code != problem.CodeQuotaExceeded {
		return refusal
	}
	stored, err := cm.store.FindAnswer(c.Request.Context(), reqctx.CompanyOf(c), g.Route, g.Key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return refusal
	case err != nil:
		return err
	}
	return cm.Replay(c, g, stored)
}

// Replay returns a stored response. It must not return a 202 for a row that only the primary has.
func (cm *Committer) Replay(c *gin.Context, g *Key, stored store.StoredAnswer) error {
	if !bytes.Equal(stored.BodySHA256, g.Sum) {
		return keyReused
	}
	if err := cm.store.Confirm(c.Request.Context()); err != nil {
		return err
	}
	Note(reqctx.StateOf(c), stored.Answer)
	c.Header("Idempotent-Replayed", "true")
	response.Accepted(c, stored.Status, stored.Answer)
	return nil
}
