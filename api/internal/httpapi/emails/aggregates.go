package emails

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
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

// cancelRounds is how often CancelAggregate lists the emails before it answers 409 AGGREGATE_IN_PROGRESS. The second
// list usually has nothing new. Each further one needs a transaction that has replaced an email since the list before.
const cancelRounds = 4

// CancelAggregate cancels the emails of an aggregate that no worker is processing. The response shows the status of the
// others. It is idempotent. It lists the emails again after the commit, which may have waited for a transaction that has
// cancelled one of them and enqueued another.
func (h *Handlers) CancelAggregate(c *gin.Context) error {
	ctx, v := c.Request.Context(), reqctx.StateOf(c)
	answer := aggregateAnswer{Type: c.Param("type"), ID: c.Param("id")}
	// Skip the query for values that cannot be stored.
	if !h.isName(answer.Type) || !h.isName(answer.ID) {
		return nothingAbout
	}
	visited := map[uuid.UUID]aggregateEmail{}
	for range cancelRounds {
		found, err := h.store.AggregateEmails(ctx, v.Caller.CompanyID, answer.Type, answer.ID)
		switch {
		case errors.Is(err, outbox.ErrAggregateTooLarge):
			return aggregateTooLarge
		case err != nil:
			return err
		case len(found) == 0:
			return nothingAbout
		}
		before := len(visited)
		if err := h.cancelEmails(ctx, v, found, visited); err != nil {
			return err
		}
		if len(visited) > before {
			continue
		}
		answer.Emails = make([]aggregateEmail, len(found))
		for i, e := range found {
			answer.Emails[i] = visited[e.ID]
		}
		c.JSON(http.StatusOK, answer)
		return nil
	}
	return outbox.ErrAggregateBusy
}

// cancelEmails cancels, in one transaction, the emails that are not in visited, and adds them to it. It does not lock emails that
// are final and cannot be sent again.
func (h *Handlers) cancelEmails(ctx context.Context, v *reqctx.State, found []outbox.AggregateEmail, visited map[uuid.UUID]aggregateEmail) error {
	var fresh []outbox.AggregateEmail
	var withdrawals []outbox.Transition
	events := []email.Event{eventBy(v, email.EventCancelled)}
	found = slices.SortedFunc(slices.Values(found), func(a, b outbox.AggregateEmail) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	for _, e := range found {
		if _, ok := visited[e.ID]; ok {
			continue
		}
		if e.Status.Final() && !e.Status.Replayable() {
			visited[e.ID] = aggregateEmail{OutboxID: e.ID.String(), EventType: e.EventType, Status: e.Status}
			continue
		}
		fresh = append(fresh, e)
		withdrawals = append(withdrawals, outbox.Transition{ID: e.ID, Guard: outbox.GuardOpen, Status: email.Cancelled, Events: events})
	}
	moved, err := h.store.AdvanceAll(ctx, v.Caller.CompanyID, withdrawals)
	if err != nil {
		return err
	}
	for i, e := range fresh {
		now := statusNow(moved[i], e.Status)
		visited[e.ID] = aggregateEmail{OutboxID: e.ID.String(), EventType: e.EventType, Status: now, Cancelled: now == email.Cancelled}
		if now == email.Cancelled {
			v.OutboxIDs = append(v.OutboxIDs, e.ID.String())
		}
	}
	return nil
}

func (h *Handlers) isName(text string) bool {
	code, _ := h.rules.CheckOne(text, "name")
	return code == ""
}
