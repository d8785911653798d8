package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/shared/draft"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// rescheduleRequest is the body of PATCH /v1/email/{id} and PATCH /mailings/{id}.
type rescheduleRequest struct {
	SendAt string `json:"sendAt" validate:"required,timestamp"`
}

// rescheduleEmail changes the time of an email that no worker is processing. It is idempotent.
func (a *API) rescheduleEmail(c *gin.Context) error {
	sendAt, err := a.readSendAt(c)
	if err != nil {
		return err
	}
	found, err := a.findEmail(c)
	if err != nil {
		return err
	}
	event := eventBy(visitOf(c), email.EventRescheduled)
	moved, err := a.store.Reschedule(c.Request.Context(), store.Move{
		CompanyID: visitOf(c).caller.CompanyID, ID: found.ID, SendAt: sendAt, TTL: a.ttl, At: event.At, By: event.Metadata,
	})
	switch {
	case errors.Is(err, store.ErrNotFound): // only its log is left
		return rescheduleTooLate(found.Status)
	case err != nil:
		return err
	case !moved.Applied:
		return rescheduleTooLate(moved.Status)
	}
	a.wake(store.Lanes{Company: visitOf(c).caller.CompanyID})
	return a.answerCurrent(c, http.StatusOK, found)
}

// readSendAt reads the requested time; the zero time means now.
func (a *API) readSendAt(c *gin.Context) (time.Time, error) {
	document, err := readJSON(c)
	if err != nil {
		return time.Time{}, err
	}
	request, found := a.reschedules.Read(document)
	wrong := a.rules.Check(&request, found)
	var sendAt time.Time
	if !wrong.Has("sendAt") {
		sendAt = draft.SendAt(request.SendAt, time.Now(), &wrong)
	}
	if len(wrong) > 0 {
		return time.Time{}, invalid(wrong)
	}
	return sendAt, nil
}
