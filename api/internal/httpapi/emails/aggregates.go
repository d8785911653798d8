package emails

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// aggregateAnswer lists the emails of an aggregate.
type aggregateAnswer struct {
	Type   string           `json:"type"`
	ID     string           `json:"id"`
	Emails []aggregateEmail `json:"emails"`
}

// aggregateEmail is the newest email of an event type.
type aggregateEmail struct {
	OutboxID  string       `json:"outboxId"`
	EventType string       `json:"eventType"`
	Status    email.Status `json:"status"`
	Cancelled bool         `json:"cancelled"`
}

// CancelAggregate cancels, in one transaction, the emails of an aggregate that no worker is
// processing. The response shows the status of the others. It is idempotent.
func (h *Handlers) CancelAggregate(c *gin.Context) error {
	ctx, v := c.Request.Context(), reqctx.StateOf(c)
	answer := aggregateAnswer{Type: c.Param("type"), ID: c.Param("id")}
	// Skip the query for values that cannot be stored.
	if !h.isName(answer.Type) || !h.isName(answer.ID) {
		return nothingAbout
	}
	found, err := h.store.AggregateEmails(ctx, v.Caller.CompanyID, answer.Type, answer.ID)
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return nothingAbout
	}
	withdrawals := make([]store.Transition, len(found))
	for i, e := range found {
		withdrawals[i] = store.Transition{
			ID: e.ID, Guard: store.GuardOpen, Status: email.Cancelled, Events: []email.Event{eventBy(v, email.EventCancelled)},
		}
	}
	moved, err := h.store.AdvanceAll(ctx, v.Caller.CompanyID, withdrawals)
	if err != nil {
		return err
	}
	answer.Emails = make([]aggregateEmail, len(found))
	for i, e := range found {
		now := statusNow(moved[i], e.Status)
		answer.Emails[i] = aggregateEmail{OutboxID: e.ID.String(), EventType: e.EventType, Status: now, Cancelled: now == email.Cancelled}
		if now == email.Cancelled {
			v.OutboxIDs = append(v.OutboxIDs, e.ID.String())
		}
	}
	c.JSON(http.StatusOK, answer)
	return nil
}

func (h *Handlers) isName(text string) bool {
	code, _ := h.rules.CheckOne(text, "name")
	return code == ""
}
