package emails

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/email"
	emailstore "email-gateway/shared/store/emails"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/outbox"
)

// Cancel cancels an email that no worker is processing. It is idempotent.
func (h *Handlers) Cancel(c *gin.Context) error {
	found, attached, err := h.findToChange(c)
	if err != nil {
		return err
	}
	changed, err := h.store.ChangeEmail(c.Request.Context(), reqctx.CompanyOf(c), outbox.Transition{
		ID: found.ID, Guard: outbox.GuardOpen, Status: email.Cancelled,
		Events: []email.Event{eventBy(reqctx.StateOf(c), email.EventCancelled)},
	})
	if err != nil {
		return err
	}
	if now := statusNow(changed.Advanced, found.Status); !changed.Applied && now != email.Cancelled {
		return cancelTooLate(now)
	}
	h.answerChanged(c, http.StatusOK, changed, attached)
	return nil
}

// Retry gives a final email all its tries again and a new deadline.
func (h *Handlers) Retry(c *gin.Context) error {
	found, attached, err := h.findToChange(c)
	if err != nil {
		return err
	}
	changed, err := h.store.ChangeEmail(c.Request.Context(), reqctx.CompanyOf(c), outbox.Transition{
		ID: found.ID, Guard: outbox.GuardReplay, Token: uuid.New(), Status: email.Pending, Renew: h.ttl,
		Events: []email.Event{eventBy(reqctx.StateOf(c), email.EventReplayed)},
	})
	if err != nil {
		return err
	}
	switch {
	case changed.Applied, changed.SameToken: // the latter: an earlier run of the statement committed, but its response was lost
	case changed.Status == "", changed.Erased:
		return contentGone()
	case changed.Replaced:
		return replaced()
	default:
		return notReplayable(changed.Status)
	}
	h.wake(lane.Lanes{Company: reqctx.CompanyOf(c)})
	h.answerChanged(c, http.StatusAccepted, changed, attached)
	return nil
}

// findToChange finds the email with the id in the path, and its attachments: they do not change, and the answer must not fail
// once the change is committed.
func (h *Handlers) findToChange(c *gin.Context) (emailstore.Email, []file.Attachment, error) {
	found, err := h.find(c)
	if err != nil {
		return emailstore.Email{}, nil, err
	}
	attached, err := h.Attached(c, found)
	return found, attached, err
}

// answerChanged responds with the email as the commit of its change left it.
func (h *Handlers) answerChanged(c *gin.Context, status int, changed emailstore.Changed, attached []file.Attachment) {
	reqctx.StateOf(c).SetEmail(changed.Email)
	c.JSON(status, h.Describe(changed.Shown, attached))
}

// statusNow returns the status of the row at the time of the step, or that of the log if the
// row is purged.
func statusNow(moved outbox.Advanced, found email.Status) email.Status {
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
