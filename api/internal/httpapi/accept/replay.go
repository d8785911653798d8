package accept

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/shared/store"
	"email-gateway/shared/store/idempotency"
)

// ReplayInstead returns the stored response of a request that is rejected now (refusal) but was
// accepted the first time: since then the sender's domain may have been removed, the HTML
// rules tightened, a template grown, or a quota used up. Only rejected requests cause the query. Those with
// Retry-After do not: the client repeats them, and under load there are many.
func (cm *Committer) ReplayInstead(c *gin.Context, g *Key, refusal error) error {
	if g == nil {
		return refusal
	}
	if p := problem.Of(refusal); p.Status >= http.StatusInternalServerError || p.RetryAfter > 0 && p.Code != problem.CodeQuotaExceeded {
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

// AnswerEarlier responds to a request that creates nothing, because an earlier request created the described object, id. A
// key is stored with the answer first: when the object is cancelled later, a repetition would otherwise create
// another one. If a concurrent request with the key has stored another answer, that one is the response. unknown is returned
// if Postgres does not confirm that the key is stored.
func (cm *Committer) AnswerEarlier(c *gin.Context, g *Key, id uuid.UUID, unknown problem.Problem, answer []byte) error {
	if g == nil {
		return cm.repeat(c, http.StatusAccepted, answer)
	}
	ctx := c.Request.Context()
	stored, err := cm.store.StoreAnswer(ctx, reqctx.CompanyOf(c), id, *g.Record(answer))
	switch {
	case errors.Is(err, store.ErrUnknownOutcome):
		return unknown
	case errors.Is(err, idempotency.ErrInProgress):
		return cm.InProgress(ctx, err)
	case err != nil:
		return err
	}
	return cm.Replay(c, g, stored)
}

// Replay returns a stored response.
func (cm *Committer) Replay(c *gin.Context, g *Key, stored idempotency.StoredAnswer) error {
	if !bytes.Equal(stored.BodySHA256, g.Sum) {
		return keyReused
	}
	return cm.repeat(c, stored.Status, stored.Answer)
}

// repeat returns the response of an earlier request. It must not return a 202 for a row that only the primary has.
func (cm *Committer) repeat(c *gin.Context, status int, answer []byte) error {
	if err := cm.store.Confirm(c.Request.Context()); err != nil {
		return err
	}
	RecordIDs(reqctx.StateOf(c), answer)
	c.Header("Idempotent-Replayed", "true")
	response.Accepted(c, status, answer)
	return nil
}
