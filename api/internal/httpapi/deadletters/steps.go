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
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/lane"
)

// Retry retries one dead letter.
func (h *Handlers) Retry(c *gin.Context) error {
	b, err := h.findBefore(c)
	switch {
	case err != nil:
		return err
	case b.letter.Target != email.TargetSend && !h.hasRabbitMQ:
		return problem.BulkDisabled
	}
	v := reqctx.StateOf(c)
	after, err := h.store.RetryOne(c.Request.Context(), b.letter, deadletter.LetterRetry{Actor: actorOf(v), RequestID: v.RequestID, TTL: h.ttl})
	var nothing *deadletter.NotReplayableError
	switch {
	case errors.As(err, &nothing):
		return notReplayable(nothing.Reason)
	case errors.Is(err, store.ErrNotFound):
		return noSuchDeadLetter
	case err != nil:
		return err
	}
	h.wake(lane.Lanes{Company: reqctx.CompanyOf(c)})
	h.answerAfter(c, http.StatusAccepted, b, after)
	return nil
}

// discardRequest is the optional body of a discard.
type discardRequest struct {
	Note *string `json:"note" validate:"omitnil,min=1,max=200,line"`
}

// Discard resolves one dead letter without retrying it. It is idempotent.
func (h *Handlers) Discard(c *gin.Context) error {
	b, err := h.findBefore(c)
	if err != nil {
		return err
	}
	var request discardRequest
	document, given, err := reqbody.ReadOptionalJSON(c)
	if err != nil {
		return err
	}
	if given {
		read, wrong := h.discards.Read(document)
		if faults := h.rules.Check(&read, wrong); len(faults) > 0 {
			return problem.Invalid(faults)
		}
		request = read
	}
	after, discarded, err := h.store.DiscardOne(c.Request.Context(), b.letter, actorOf(reqctx.StateOf(c)), strictjson.Or(request.Note, ""))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchDeadLetter
	case err != nil:
		return err
	case !discarded && strictjson.Or(after.Resolution, deadletter.Retried) != deadletter.Discarded:
		return alreadyResolved
	}
	h.answerAfter(c, http.StatusOK, b, after)
	return nil
}

func actorOf(v *reqctx.State) audit.Actor { return audit.Actor{By: audit.ByAPI, Name: v.Caller.KeyID} }

// before is a dead letter before it is resolved, with the parts of the answer that do not change: the answer must not fail once
// the change is committed.
type before struct {
	letter   deadletter.Letter
	payload  any
	attached []file.Attachment // to its email
}

// findBefore finds the dead letter with the id in the path.
func (h *Handlers) findBefore(c *gin.Context) (b before, err error) {
	if b.letter, err = h.find(c); err != nil {
		return b, err
	}
	if b.payload, err = payloadOf(b.letter); err != nil {
		return b, err
	}
	found, err := h.emailOf(c, b.letter)
	if err != nil || found == nil {
		return b, err
	}
	b.attached, err = h.emails.Attached(c, *found)
	return b, err
}

// answerAfter responds with the dead letter as the commit that resolved it left it.
func (h *Handlers) answerAfter(c *gin.Context, status int, b before, after deadletter.Shown) {
	details := letterDetails{deadLetter: deadLetterOf(after.Letter), Payload: b.payload}
	if after.Email != nil {
		reqctx.StateOf(c).SetEmail(after.Email.Email)
		details.show(h.emails.Describe(*after.Email, b.attached))
	}
	c.JSON(status, details)
}
