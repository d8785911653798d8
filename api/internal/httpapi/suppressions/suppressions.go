package suppressions

import (
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/store/suppression"
)

// addRequest is the body of POST /v1/suppressions.
type addRequest struct {
	Address string  `json:"address" validate:"required,address"`
	Reason  *string `json:"reason" validate:"omitnil,oneof=UNSUBSCRIBE BOUNCE COMPLAINT MANUAL" blank:"refused"`
	Note    *string `json:"note" validate:"omitnil,min=1,max=200,line"`
}

type suppressionAnswer struct {
	Address   string             `json:"address"`
	Reason    suppression.Reason `json:"reason"`
	MailingID *uuid.UUID         `json:"mailingId,omitempty"`
	Note      *string            `json:"note,omitempty"`
	CreatedAt time.Time          `json:"createdAt"`
}

type listPage struct {
	Suppressions []suppressionAnswer `json:"suppressions"`
	NextCursor   string              `json:"nextCursor,omitempty"`
}

// Add suppresses an address for the company. It is idempotent.
func (h *Handlers) Add(c *gin.Context) error {
	document, err := reqbody.ReadJSON(c)
	if err != nil {
		return err
	}
	request, found := h.reader.Read(document)
	if faults := h.rules.Check(&request, found); len(faults) > 0 {
		return problem.Invalid(faults)
	}
	address, err := mailbox.ASCII(request.Address)
	if err != nil {
		return err
	}
	s := suppression.Suppression{Address: address, Reason: suppression.Reason(strictjson.Or(request.Reason, string(suppression.Manual))), Note: request.Note}
	added, err := h.store.AddSuppression(c.Request.Context(), reqctx.CompanyOf(c), s)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, answerOf(added))
	return nil
}

// Remove removes the suppressions of an address, or the one with the given reason.
func (h *Handlers) Remove(c *gin.Context) error {
	q, err := query.Open(c.Request, h.rules)
	if err != nil {
		return err
	}
	q.Require("address")
	address, reason := q.Address("address"), q.Text("reason", reasonRule)
	if err := q.Close(); err != nil {
		return err
	}
	err = h.store.Unsuppress(c.Request.Context(), reqctx.CompanyOf(c), address, suppression.Reason(reason))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchSuppression
	case err != nil:
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}

const reasonRule = "oneof=UNSUBSCRIBE BOUNCE COMPLAINT MANUAL"

// List handles GET /v1/suppressions.
func (h *Handlers) List(c *gin.Context) error {
	filter, q, err := readFilter(c.Request, h.rules)
	if err != nil {
		return err
	}
	found, err := h.store.Suppressions(c.Request.Context(), reqctx.CompanyOf(c), filter)
	if err != nil {
		return err
	}
	answer := listPage{Suppressions: make([]suppressionAnswer, len(found))}
	for i, s := range found {
		answer.Suppressions[i] = answerOf(s)
	}
	if len(found) == filter.Limit {
		last := found[len(found)-1]
		cursor := suppressionCursor{Address: last.Address, Reason: last.Reason}
		if !filter.CreatedAfter.IsZero() {
			cursor.CreatedAt = &last.CreatedAt
		}
		if answer.NextCursor, err = q.EncodeCursor(cursor); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, answer)
	return nil
}

// suppressionCursor is the last row of a page.
type suppressionCursor struct {
	Address string             `json:"a"`
	Reason  suppression.Reason `json:"r"`
	// CreatedAt is set in a list by creation.
	CreatedAt *time.Time `json:"t,omitempty"`
}

func readFilter(r *http.Request, checks *rules.Rules) (suppression.Filter, *query.Query, error) {
	q, err := query.Open(r, checks)
	if err != nil {
		return suppression.Filter{}, nil, err
	}
	filter := suppression.Filter{
		Address: q.Address("address"),
		Reason:  suppression.Reason(q.Text("reason", reasonRule)),
		Limit:   q.Limit("limit"),
	}
	if after := q.Moment("createdAfter"); after != nil {
		filter.CreatedAfter = *after
	}
	var last suppressionCursor
	if q.CursorInto("cursor", &last) {
		// A list keeps its order from page to page.
		if (last.CreatedAt != nil) != !filter.CreatedAfter.IsZero() {
			q.RejectCursor("cursor")
		}
		filter.AfterAddress, filter.AfterReason = last.Address, last.Reason
		if last.CreatedAt != nil {
			filter.AfterTime = *last.CreatedAt
		}
	}
	return filter, q, q.Close()
}

func answerOf(s suppression.Suppression) suppressionAnswer {
	return suppressionAnswer{Address: s.Address, Reason: s.Reason, MailingID: s.MailingID, Note: s.Note, CreatedAt: s.CreatedAt.UTC()}
}
