package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/shared/mailbox"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
)

// suppressRequest is the body of POST /v1/suppressions.
type suppressRequest struct {
	Address string  `json:"address" validate:"required,address"`
	Reason  *string `json:"reason" validate:"omitnil,oneof=UNSUBSCRIBE BOUNCE COMPLAINT MANUAL"`
	Note    *string `json:"note" validate:"omitnil,min=1,max=200,line"`
}

type suppressionAnswer struct {
	Address   string                  `json:"address"`
	Reason    store.SuppressionReason `json:"reason"`
	MailingID *uuid.UUID              `json:"mailingId,omitempty"`
	Note      *string                 `json:"note,omitempty"`
	CreatedAt time.Time               `json:"createdAt"`
}

type suppressionPage struct {
	Suppressions []suppressionAnswer `json:"suppressions"`
	NextCursor   string              `json:"nextCursor,omitempty"`
}

// addSuppression suppresses an address for the company. It is idempotent.
func (a *API) addSuppression(c *gin.Context) error {
	document, err := readJSON(c)
	if err != nil {
		return err
	}
	request, found := a.suppressions.Read(document)
	if wrong := a.rules.Check(&request, found); len(wrong) > 0 {
		return invalid(wrong)
	}
	address, err := mailbox.ASCII(request.Address)
	if err != nil {
		return err
	}
	company := visitOf(c).caller.CompanyID
	s := store.Suppression{Address: address, Reason: store.SuppressionReason(value(request.Reason, string(store.Manual))), Note: request.Note}
	if err := a.store.AddSuppression(c.Request.Context(), company, s); err != nil {
		return err
	}
	stands, err := a.store.Suppressions(c.Request.Context(), company, store.SuppressionFilter{Address: s.Address, Reason: s.Reason, Limit: 1})
	switch {
	case err != nil:
		return err
	case len(stands) == 0:
		return noSuchSuppression // removed concurrently
	}
	c.JSON(http.StatusOK, suppressionOf(stands[0]))
	return nil
}

// removeSuppression removes the suppressions of an address, or the one with the given reason.
func (a *API) removeSuppression(c *gin.Context) error {
	q, err := openQuery(c.Request.URL.RawQuery, a.rules)
	if err != nil {
		return err
	}
	address, reason := q.address("address"), q.text("reason", reasonRule)
	if address == "" && !q.faults.Has("address") {
		q.faults.Add("address", "REQUIRED", "is required")
	}
	if err := q.close(); err != nil {
		return err
	}
	err = a.store.Unsuppress(c.Request.Context(), visitOf(c).caller.CompanyID, address, store.SuppressionReason(reason))
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

func (a *API) listSuppressions(c *gin.Context) error {
	filter, err := readSuppressionFilter(c.Request.URL.RawQuery, a.rules)
	if err != nil {
		return err
	}
	found, err := a.store.Suppressions(c.Request.Context(), visitOf(c).caller.CompanyID, filter)
	if err != nil {
		return err
	}
	answer := suppressionPage{Suppressions: make([]suppressionAnswer, len(found))}
	for i, s := range found {
		answer.Suppressions[i] = suppressionOf(s)
	}
	if len(found) == filter.Limit {
		last := found[len(found)-1]
		cursor := suppressionCursor{Address: last.Address, Reason: last.Reason}
		if !filter.CreatedAfter.IsZero() {
			cursor.CreatedAt = &last.CreatedAt
		}
		if answer.NextCursor, err = encodeCursor(cursor); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, answer)
	return nil
}

// suppressionCursor is the last row of a page.
type suppressionCursor struct {
	Address string                  `json:"a"`
	Reason  store.SuppressionReason `json:"r"`
	// CreatedAt is set in a list by creation.
	CreatedAt *time.Time `json:"t,omitempty"`
}

func readSuppressionFilter(raw string, checks *rules.Rules) (store.SuppressionFilter, error) {
	q, err := openQuery(raw, checks)
	if err != nil {
		return store.SuppressionFilter{}, err
	}
	filter := store.SuppressionFilter{
		Address: q.address("address"),
		Reason:  store.SuppressionReason(q.text("reason", reasonRule)),
		Limit:   q.limit("limit"),
	}
	if after := q.moment("createdAfter"); after != nil {
		filter.CreatedAfter = *after
	}
	if text, given := q.get("cursor"); given {
		var last suppressionCursor
		// A list keeps its order from page to page.
		if json.Unmarshal(decodeCursor(text), &last) != nil || (last.CreatedAt != nil) != !filter.CreatedAfter.IsZero() {
			q.faults.Add("cursor", "INVALID_CURSOR", "must be the nextCursor of a page")
		}
		filter.AfterAddress, filter.AfterReason = last.Address, last.Reason
		if last.CreatedAt != nil {
			filter.AfterTime = *last.CreatedAt
		}
	}
	return filter, q.close()
}

func suppressionOf(s store.Suppression) suppressionAnswer {
	return suppressionAnswer{Address: s.Address, Reason: s.Reason, MailingID: s.MailingID, Note: s.Note, CreatedAt: s.CreatedAt.UTC()}
}
