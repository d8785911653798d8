package emails

import (
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/outbox"
)

// Reschedule changes the time of an email that no worker is processing. It is idempotent.
func (h *Handlers) Reschedule(c *gin.Context) error {
	sendAt, err := h.sendAt.Read(c)
	if err != nil {
		return err
	}
	found, attached, err := h.findToChange(c)
	if err != nil {
		return err
	}
	event := eventBy(reqctx.StateOf(c), email.EventRescheduled)
	changed, err := h.store.Reschedule(c.Request.Context(), outbox.Move{
		CompanyID: reqctx.CompanyOf(c), ID: found.ID, SendAt: sendAt, TTL: h.ttl, At: event.At, By: event.Metadata,
	})
	switch {
	case errors.Is(err, store.ErrNotFound): // only its log is left
		return rescheduleTooLate(found.Status)
	case err != nil:
		return err
	case !changed.Applied:
		return rescheduleTooLate(changed.Status)
	}
	h.wake(lane.Lanes{Company: reqctx.CompanyOf(c)})
	h.answerChanged(c, http.StatusOK, changed, attached)
	return nil
}
