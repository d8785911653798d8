package emails

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	emailstore "email-gateway/shared/store/emails"
)

// listPage is the response of GET /v1/emails. A page may be short or empty and still have a
// NextCursor; the list ends where there is none.
type listPage struct {
	Emails     []summary `json:"emails"`
	NextCursor string    `json:"nextCursor,omitempty"`
}

// List handles GET /v1/emails.
func (h *Handlers) List(c *gin.Context) error {
	filter, q, err := readFilter(c.Request, h.rules)
	if err != nil {
		return err
	}
	page, err := h.store.ListEmails(c.Request.Context(), reqctx.CompanyOf(c), filter)
	if err != nil {
		return err
	}
	answer := listPage{Emails: make([]summary, len(page.Emails))}
	for i, e := range page.Emails {
		answer.Emails[i] = h.summaryOf(e)
	}
	if page.Next != uuid.Nil {
		if answer.NextCursor, err = q.CursorTo(page.Next); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, answer)
	return nil
}

const deliveryRule = "oneof=pending delayed delivered rejected bounced complained"

// readFilter parses the query string of a search.
func readFilter(r *http.Request, checks *rules.Rules) (emailstore.Filter, *query.Query, error) {
	q, err := query.Open(r, checks)
	if err != nil {
		return emailstore.Filter{}, nil, err
	}
	filter := emailstore.Filter{
		Before:     q.Cursor("cursor"),
		From:       q.Bound("createdAfter"),
		Until:      q.Bound("createdBefore"),
		Status:     email.Status(q.Text("status", "status")),
		Tag:        q.Text("tag", "max=64,printable"),
		Recipient:  q.Address("recipient"),
		ExternalID: q.Text("externalId", "max=200,line"),
		RequestID:  q.Text("requestId", "max=128,printable"),
		AboutType:  q.Text("aggregateType", "max=64,name"),
		AboutID:    q.Text("aggregateId", "max=200,name"),
		EventType:  q.Text("eventType", "max=64,name"),
		Delivery:   email.DeliveryState(q.Text("delivery", deliveryRule)),
		Limit:      q.Limit("limit"),
	}
	if after := q.Moment("updatedAfter"); after != nil {
		filter.UpdatedAfter = *after
	}
	// An aggregate id is unique within its type, an event type within its aggregate.
	q.Needs("aggregateType", "aggregateId")
	q.Needs("aggregateId", "aggregateType")
	q.Needs("eventType", "aggregateId")
	return filter, q, q.Close()
}
