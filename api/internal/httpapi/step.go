package httpapi

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// cancelEmail cancels an email that no worker is processing. It is idempotent.
func (a *API) cancelEmail(c *gin.Context) error {
	found, err := a.findEmail(c)
	if err != nil {
		return err
	}
	moved, err := a.store.AdvanceAll(c.Request.Context(), visitOf(c).caller.CompanyID, []store.Transition{{
		ID: found.ID, Guard: store.GuardOpen, Status: email.Cancelled,
		Events: []email.Event{eventBy(visitOf(c), email.EventCancelled)},
	}})
	if err != nil {
		return err
	}
	if now := statusNow(moved[0], found.Status); !moved[0].Applied && now != email.Cancelled {
		return cancelTooLate(now)
	}
	return a.answerCurrent(c, http.StatusOK, found)
}

// retryEmail gives a final email all its tries again and a new deadline.
func (a *API) retryEmail(c *gin.Context) error {
	found, err := a.findEmail(c)
	if err != nil {
		return err
	}
	all, err := a.store.AdvanceAll(c.Request.Context(), visitOf(c).caller.CompanyID, []store.Transition{{
		ID: found.ID, Guard: store.GuardReplay, Token: uuid.New(), Status: email.Pending, Renew: a.ttl,
		Events: []email.Event{eventBy(visitOf(c), email.EventReplayed)},
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
	a.wake(store.Lanes{Company: visitOf(c).caller.CompanyID})
	return a.answerCurrent(c, http.StatusAccepted, found)
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
func eventBy(v *requestState, eventType email.EventType) email.Event {
	return email.Event{Type: eventType, At: time.Now().UTC(), Metadata: map[string]any{
		"by": "api", "keyId": v.caller.KeyID, "requestId": v.requestID,
	}}
}

// answerCurrent responds with the email after the step.
func (a *API) answerCurrent(c *gin.Context, status int, before store.Email) error {
	after, err := a.readEmail(c, before.ID)
	if err != nil {
		return err
	}
	return a.answerEmail(c, status, after)
}
