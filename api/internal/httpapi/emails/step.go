package emails

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// Cancel cancels an email that no worker is processing. It is idempotent.
func (h *Handlers) Cancel(c *gin.Context) error {
	found, err := h.find(c)
	if err != nil {
		return err
	}
	moved, err := h.store.AdvanceAll(c.Request.Context(), reqctx.CompanyOf(c), []store.Transition{{
		ID: found.ID, Guard: store.GuardOpen, Status: email.Cancelled,
		Events: []email.Event{eventBy(reqctx.StateOf(c), email.EventCancelled)},
	}})
	if err != nil {
		return err
	}
	if now := statusNow(moved[0], found.Status); !moved[0].Applied && now != email.Cancelled {
		return cancelTooLate(now)
	}
	return h.answerCurrent(c, http.StatusOK, found)
}

// Retry gives a final email all its tries again and a new deadline.
func (h *Handlers) Retry(c *gin.Context) error {
	found, err := h.find(c)
	if err != nil {
		return err
	}
	all, err := h.store.AdvanceAll(c.Request.Context(), reqctx.CompanyOf(c), []store.Transition{{
		ID: found.ID, Guard: store.GuardReplay, Token: uuid.New(), Status: email.Pending, Renew: h.ttl,
		Events: []email.Event{eventBy(reqctx.StateOf(c), email.EventReplayed)},
	}})
	if err != nil {
		return err
	}
	switch moved := all[0]; {
	case moved.Applied, moved.SameToken: // the latter: an earlier run of the statement committed, but its response was lost
	case moved.Status == "", moved.Erased:
		return contentGone()
	case moved.Replaced:
		return replaced()
	default:
		return notReplayable(moved.Status)
	}
	h.wake(store.Lanes{Company: reqctx.CompanyOf(c)})
	return h.answerCurrent(c, http.StatusAccepted, found)
}

// statusNow returns the status of the row at the time of the step, or that of the log if the
// row is purged.
func statusNow(moved store.Advanced, found email.Status) email.Status {
	if moved.Status == "" {
		return found
	}
	return moved.Status
}

// eventBy creates a timeline event with the caller of the step.
func eventBy(v *reqctx.State, eventType email.EventType) email.Event {
	return email.Event{Type: eventType, At: time.Now().UTC(), Metadata: map[string]any{
		"by": "api", "keyId": v.Caller.KeyID, "requestId": v.RequestID,
	}}
}

// answerCurrent responds with the email after the step.
func (h *Handlers) answerCurrent(c *gin.Context, status int, before store.Email) error {
	after, err := h.Read(c, before.ID)
	if err != nil {
		return err
	}
	return h.answer(c, status, after)
}
