package httpapi

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
)

// emailPage is the response of GET /v1/emails. A page may be short or empty and still have a
// NextCursor; the list ends where there is none.
type emailPage struct {
	Emails     []emailSummary `json:"emails"`
	NextCursor string         `json:"nextCursor,omitempty"`
}

func (a *API) listEmails(c *gin.Context) error {
	filter, err := readFilter(c.Request.URL.RawQuery, a.rules)
	if err != nil {
		return err
	}
	page, err := a.store.ListEmails(c.Request.Context(), visitOf(c).caller.CompanyID, filter)
	if err != nil {
		return err
	}
	answer := emailPage{Emails: make([]emailSummary, len(page.Emails))}
	for i, e := range page.Emails {
		answer.Emails[i] = a.summaryOf(e)
	}
	if page.Next != uuid.Nil {
		answer.NextCursor = cursorTo(page.Next)
	}
	c.JSON(http.StatusOK, answer)
	return nil
}

const deliveryRule = "oneof=pending delayed delivered rejected bounced complained"

// readFilter parses the query string of a search.
func readFilter(raw string, checks *rules.Rules) (store.EmailFilter, error) {
	q, err := openQuery(raw, checks)
	if err != nil {
		return store.EmailFilter{}, err
	}
	filter := store.EmailFilter{
		Before:     q.cursor("cursor"),
		From:       q.bound("createdAfter"),
		Until:      q.bound("createdBefore"),
		Status:     email.Status(q.text("status", "status")),
		Tag:        q.text("tag", "max=64,printable"),
		Recipient:  q.address("recipient"),
		ExternalID: q.text("externalId", "max=200,line"),
		RequestID:  q.text("requestId", "max=128,printable"),
		AboutType:  q.text("aggregateType", "max=64,name"),
		AboutID:    q.text("aggregateId", "max=200,name"),
		EventType:  q.text("eventType", "max=64,name"),
		Delivery:   email.DeliveryState(q.text("delivery", deliveryRule)),
		Limit:      q.limit("limit"),
	}
	if after := q.moment("updatedAfter"); after != nil {
		filter.UpdatedAfter = *after
	}
	// An aggregate id is unique within its type, an event type within its aggregate.
	q.needs("aggregateType", "aggregateId")
	q.needs("aggregateId", "aggregateType")
	q.needs("eventType", "aggregateId")
	return filter, q.close()
}
