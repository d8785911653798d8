package deadletters

import (
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// Retry retries one dead letter.
func (h *Handlers) Retry(c *gin.Context) error {
	found, err := h.find(c)
	switch {
	case err != nil:
		return err
	case found.Target != email.TargetSend && !h.hasRabbitMQ:
		return problem.BulkDisabled
	}
	v := reqctx.StateOf(c)
	err = h.store.RetryDeadLetter(c.Request.Context(), found, store.LetterRetry{Actor: actorOf(v), RequestID: v.RequestID, TTL: h.ttl})
	var nothing *store.NotReplayableError
	switch {
	case errors.As(err, &nothing):
		return notReplayable(nothing.Reason)
	case err != nil:
		return err
	}
	h.wake(store.Lanes{Company: reqctx.CompanyOf(c)})
	return h.answerCurrent(c, http.StatusAccepted)
}

// discardRequest is the optional body of a discard.
type discardRequest struct {
	Note *string `json:"note" validate:"omitnil,min=1,max=200,line"`
}

// Discard resolves one dead letter without retrying it. It is idempotent.
func (h *Handlers) Discard(c *gin.Context) error {
	found, err := h.find(c)
	if err != nil {
		return err
	}
	var request discardRequest
	if c.Request.ContentLength != 0 {
		document, err := reqbody.ReadJSON(c)
		if err != nil {
			return err
		}
		read, wrong := h.discards.Read(document)
		if wrong := h.rules.Check(&read, wrong); len(wrong) > 0 {
			return problem.Invalid(wrong)
		}
		request = read
	}
	discarded, err := h.store.DiscardDeadLetter(c.Request.Context(), found, actorOf(reqctx.StateOf(c)), strictjson.Or(request.Note, ""))
	if err != nil {
		return err
	}
	if !discarded {
		now, err := h.find(c)
		if err != nil {
			return err
		}
		if strictjson.Or(now.Resolution, store.Retried) != store.Discarded {
			return alreadyResolved
		}
	}
	return h.answerCurrent(c, http.StatusOK)
}

func actorOf(v *reqctx.State) store.Actor { return store.Actor{By: store.ByAPI, Name: v.Caller.KeyID} }

func (h *Handlers) answerCurrent(c *gin.Context, status int) error {
	found, err := h.find(c)
	if err != nil {
		return err
	}
	return h.answer(c, status, found)
}
