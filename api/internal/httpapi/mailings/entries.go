package mailings

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	mailingstore "email-gateway/shared/store/mailing"
)

// mailingEntry is one address of a mailing. Its id is also that of the email created from it.
type mailingEntry struct {
	OutboxID          string     `json:"outboxId"`
	Line              int        `json:"line"`
	Email             string     `json:"email"`
	Status            string     `json:"status"`
	InvalidReason     *string    `json:"invalidReason,omitempty"`
	ValidationDetails *string    `json:"validationDetails,omitempty"`
	OutcomeUnknown    bool       `json:"outcomeUnknown"`
	Attempts          int        `json:"attempts"`
	LastAttemptAt     *time.Time `json:"lastAttemptAt,omitempty"`
	SESMessageID      *string    `json:"sesMessageId,omitempty"`
	Nome              *string    `json:"nome,omitempty"`
	RazaoSocial       *string    `json:"razaoSocial,omitempty"`
	ExternalID        *string    `json:"externalId,omitempty"`
	RecipientID       *uuid.UUID `json:"recipientId,omitempty"`
	UpdatedAt         time.Time  `json:"updatedAt"`
}

type entryPage struct {
	Entries    []mailingEntry `json:"entries"`
	NextCursor string         `json:"nextCursor,omitempty"`
}

const entryStatusRule = "oneof=PENDING INVALID QUEUED SENT FAILED EXPIRED CANCELLED SUPPRESSED"

// ListEntries lists the addresses of a mailing.
func (h *Handlers) ListEntries(c *gin.Context) error {
	id, err := mailingID(c)
	if err != nil {
		return err
	}
	q, err := query.Open(c.Request, h.Rules)
	if err != nil {
		return err
	}
	filter := mailingstore.EntryFilter{Status: q.Text("status", entryStatusRule), After: q.Cursor("cursor"), Limit: q.Limit("limit")}
	if err := q.Close(); err != nil {
		return err
	}
	found, err := h.Store.MailingEntries(c.Request.Context(), reqctx.CompanyOf(c), id, filter)
	if err != nil {
		return problemOf(err)
	}
	page := entryPage{Entries: make([]mailingEntry, len(found))}
	for i, e := range found {
		page.Entries[i] = entryOf(e)
	}
	if len(found) == filter.Limit {
		if page.NextCursor, err = q.CursorTo(found[filter.Limit-1].ID); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, page)
	return nil
}

func entryOf(e mailingstore.Entry) mailingEntry {
	shown := mailingEntry{
		OutboxID: e.ID.String(), Line: e.Line, Email: e.Email, Status: e.Status,
		InvalidReason: e.InvalidReason, ValidationDetails: e.ValidationDetails, OutcomeUnknown: e.OutcomeUnknown,
		Attempts: e.Attempts, LastAttemptAt: response.InUTC(e.LastAttempt), SESMessageID: e.SESMessageID,
		Nome: e.Nome, RazaoSocial: e.RazaoSocial, ExternalID: e.ExternalID, UpdatedAt: e.UpdatedAt.UTC(),
	}
	if e.RecipientID.Valid {
		shown.RecipientID = &e.RecipientID.UUID
	}
	return shown
}
