package mailings

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/store/file"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/quota"
)

// mailingDetails is a mailing in a response.
type mailingDetails struct {
	MailingID    string                `json:"mailingId"`
	RequestID    string                `json:"requestId"`
	Filename     string                `json:"filename"`
	Status       mailingstore.Status   `json:"status"`
	DryRun       bool                  `json:"dryRun"`
	Subject      string                `json:"subject"`
	Template     *response.Template    `json:"template,omitempty"`
	From         string                `json:"from"`
	ReplyTo      *string               `json:"replyTo,omitempty"`
	Tags         []string              `json:"tags"`
	Delivery     email.Delivery        `json:"delivery"`
	SendAt       *time.Time            `json:"sendAt,omitempty"`
	StartsAt     *time.Time            `json:"startsAt,omitempty"`
	WaitingFor   quota.Quota           `json:"waitingFor,omitempty"`
	WaitingUntil *time.Time            `json:"waitingUntil,omitempty"`
	Settling     *string               `json:"settling,omitempty"`
	ErrorMessage *string               `json:"errorMessage,omitempty"`
	Attachments  []response.Attachment `json:"attachments,omitempty"`

	Total           int             `json:"total"`
	Accepted        int             `json:"accepted"`
	Invalid         int             `json:"invalid"`
	InvalidByReason json.RawMessage `json:"invalidByReason"`
	Duplicates      int             `json:"duplicates"`
	EmptyFields     int             `json:"emptyFields"`

	Expanded     int     `json:"expanded"`
	Queued       int     `json:"queued"`
	Sent         int     `json:"sent"`
	Failed       int     `json:"failed"`
	Suppressed   int     `json:"suppressed"`
	Expired      int     `json:"expired"`
	Cancelled    int     `json:"cancelled"`
	Unknown      int     `json:"unknown"`
	InvalidLater int     `json:"invalidLater"`
	Delivered    int     `json:"delivered"`
	Bounced      int     `json:"bounced"`
	Complained   int     `json:"complained"`
	Unsubscribed int     `json:"unsubscribed"`
	Rate         float64 `json:"rate"` // entries per second

	CreatedAt    time.Time  `json:"createdAt"`
	UpdatedAt    time.Time  `json:"updatedAt"`
	CountedAt    *time.Time `json:"countedAt,omitempty"`
	EstimatedEnd *time.Time `json:"estimatedEnd,omitempty"`
	CompletedAt  *time.Time `json:"completedAt,omitempty"`

	EntriesDeletedAt *time.Time `json:"entriesDeletedAt,omitempty"`
}

func detailsOf(m mailingstore.Mailing, attached []file.Attachment) mailingDetails {
	d := mailingDetails{
		MailingID: m.ID.String(), RequestID: m.RequestID, Filename: m.Filename, Status: m.Status, DryRun: m.DryRun,
		Subject: m.Subject, From: m.Sender, ReplyTo: m.ReplyTo, Tags: m.Tags, Delivery: m.Delivery, SendAt: response.InUTC(m.SendAt),
		Settling: m.Settling, ErrorMessage: m.ErrorMessage, Attachments: response.Attachments(attached),
		Total: m.Total, Accepted: m.Accepted, Invalid: m.Invalid, InvalidByReason: m.InvalidByReason, Duplicates: m.Duplicates, EmptyFields: m.EmptyFields,
		Expanded: min(m.Processed, m.Accepted), Queued: m.Queued, Sent: m.Sent, Failed: m.Failed, Suppressed: m.Suppressed, Expired: m.Expired,
		Cancelled: m.Cancelled, Unknown: m.Unknown, InvalidLater: m.InvalidLater,
		Delivered: m.Delivered, Bounced: m.Bounced, Complained: m.Complained, Unsubscribed: m.Unsubscribed, Rate: m.Rate,
		CreatedAt: m.CreatedAt.UTC(), UpdatedAt: m.UpdatedAt.UTC(), CountedAt: response.InUTC(m.CountedAt), CompletedAt: response.InUTC(m.CompletedAt),
		EntriesDeletedAt: response.InUTC(m.EntriesDeletedAt),
	}
	if m.Template != nil {
		d.Template = response.TemplateOf(*m.Template)
	}
	if d.Tags == nil {
		d.Tags = []string{}
	}
	if m.Status == mailingstore.Queued && m.Processed == 0 && m.ExpandedAt == nil {
		d.StartsAt = d.SendAt
		if d.StartsAt == nil {
			d.StartsAt = &d.CreatedAt
		}
	}
	if waits := m.WaitsFor(time.Now()); waits.For != "" {
		d.WaitingFor = waits.For
		if !waits.Until.IsZero() {
			d.WaitingUntil = &waits.Until
		}
	}
	if left := m.Remaining(); left > 0 && d.WaitingFor == "" {
		end := time.Now().Add(left).UTC().Truncate(time.Second)
		d.EstimatedEnd = &end
	}
	return d
}

// Show handles GET /mailings/{id}.
func (h *Handlers) Show(c *gin.Context) error {
	id, err := mailingID(c)
	if err != nil {
		return err
	}
	found, err := h.Store.FindMailing(c.Request.Context(), reqctx.CompanyOf(c), id)
	if err != nil {
		return problemOf(err)
	}
	all, err := h.withAttachments(c, []mailingstore.Mailing{found})
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, all[0])
	return nil
}

// withAttachments describes mailings of the caller. One statement reads the attachments of all that were uploaded with some.
func (h *Handlers) withAttachments(c *gin.Context, mailings []mailingstore.Mailing) ([]mailingDetails, error) {
	var owners []uuid.UUID
	for _, m := range mailings {
		if m.Attachments > 0 {
			owners = append(owners, m.ID)
		}
	}
	var attached map[uuid.UUID][]file.Attachment
	if len(owners) > 0 {
		var err error
		ctx, company := c.Request.Context(), reqctx.CompanyOf(c)
		attached, err = slots.Run(ctx, h.Slots, company, func() (map[uuid.UUID][]file.Attachment, error) {
			return h.AttachmentStore.AttachmentsOf(ctx, company, owners)
		})
		if err != nil {
			return nil, err
		}
	}
	all := make([]mailingDetails, len(mailings))
	for i, m := range mailings {
		all[i] = detailsOf(m, attached[m.ID])
	}
	return all, nil
}

// mailingID parses the id in the path. A malformed id is reported as not found.
func mailingID(c *gin.Context) (uuid.UUID, error) {
	id, err := rules.ParseID(c.Param("id"))
	if err != nil {
		return uuid.Nil, noSuchMailing
	}
	reqctx.StateOf(c).MailingID = id.String()
	return id, nil
}

// listPage is the response of GET /mailings.
type listPage struct {
	Mailings   []mailingDetails `json:"mailings"`
	NextCursor string           `json:"nextCursor,omitempty"`
}

// List handles GET /mailings: the newest mailings first.
func (h *Handlers) List(c *gin.Context) error {
	q, err := query.Open(c.Request, h.Rules)
	if err != nil {
		return err
	}
	before, limit := q.Cursor("cursor"), q.Limit("limit")
	if err := q.Close(); err != nil {
		return err
	}
	found, err := h.Store.ListMailings(c.Request.Context(), reqctx.CompanyOf(c), before, limit)
	if err != nil {
		return err
	}
	var page listPage
	if page.Mailings, err = h.withAttachments(c, found); err != nil {
		return err
	}
	if len(found) == limit {
		if page.NextCursor, err = q.CursorTo(found[limit-1].ID); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, page)
	return nil
}

// problemOf maps errors of a mailing; problem.Of would map them to those of an email.
func problemOf(err error) error {
	var state *mailingstore.StateError
	switch {
	case errors.As(err, &state):
		return wrongState(state)
	case errors.Is(err, store.ErrNotFound):
		return noSuchMailing
	case errors.Is(err, store.ErrBusy):
		return busy
	case errors.Is(err, store.ErrExists):
		return filenameTaken
	}
	return err
}
