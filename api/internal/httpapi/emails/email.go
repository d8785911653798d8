package emails

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	emailstore "email-gateway/shared/store/emails"
	"email-gateway/shared/store/file"
)

// summary is an email in a list.
type summary struct {
	OutboxID          string              `json:"outboxId"`
	JobID             string              `json:"jobId"`
	RequestID         string              `json:"requestId"`
	Status            email.Status        `json:"status"`
	To                string              `json:"to"`
	Subject           string              `json:"subject"`
	Tags              []string            `json:"tags"`
	RecipientID       *uuid.UUID          `json:"recipientId,omitempty"`
	ExternalID        *string             `json:"externalId,omitempty"`
	Aggregate         *response.Aggregate `json:"aggregate,omitempty"`
	Template          *response.Template  `json:"template,omitempty"`
	Attempts          int                 `json:"attempts"`
	Throttles         int                 `json:"throttles"`
	Tries             email.Tries         `json:"tries"`
	PossibleDuplicate bool                `json:"possibleDuplicate"`
	OutcomeUnknown    bool                `json:"outcomeUnknown"`
	SESMessageID      *string             `json:"sesMessageId,omitempty"`
	ErrorCode         *string             `json:"errorCode,omitempty"`
	ErrorReason       *string             `json:"errorReason,omitempty"`
	DurationMS        *int                `json:"durationMs,omitempty"`
	CreatedAt         time.Time           `json:"createdAt"`
	ExpiresAt         time.Time           `json:"expiresAt"`
	NextAttemptAt     *time.Time          `json:"nextAttemptAt,omitempty"`
	SentAt            *time.Time          `json:"sentAt,omitempty"`
	FailedAt          *time.Time          `json:"failedAt,omitempty"`

	// Priority, DeliveryPolicy and MailingID are missing once the email is purged.
	Priority       *int            `json:"priority,omitempty"`
	DeliveryPolicy *email.Delivery `json:"deliveryPolicy,omitempty"` // delivery of the request; here delivery is the state
	MailingID      *uuid.UUID      `json:"mailingId,omitempty"`

	Delivery       *email.DeliveryState `json:"delivery,omitempty"`
	DeliveryAt     *time.Time           `json:"deliveryAt,omitempty"`
	DeliveryReason *string              `json:"deliveryReason,omitempty"`
}

// Details is an email with its timeline.
type Details struct {
	summary
	From    string     `json:"from,omitempty"`
	CC      []string   `json:"cc,omitempty"`
	BCC     []string   `json:"bcc,omitempty"`
	ReplyTo string     `json:"replyTo,omitempty"`
	SendAt  *time.Time `json:"sendAt,omitempty"`
	// Attachments are listed until the email's content is deleted.
	Attachments []response.Attachment `json:"attachments,omitempty"`
	Events      []timelineEvent       `json:"events"`
}

type timelineEvent struct {
	Seq       int             `json:"seq"`
	Type      email.EventType `json:"type"`
	CreatedAt time.Time       `json:"createdAt"`
	Metadata  json.RawMessage `json:"metadata"`
}

func (h *Handlers) summaryOf(e emailstore.Email) summary {
	s := summary{
		OutboxID: e.ID.String(), JobID: e.ID.String(), RequestID: e.RequestID,
		Status: e.Status, To: e.Recipient, Subject: e.Subject, Tags: e.Tags,
		RecipientID: e.RecipientID, ExternalID: e.ExternalID,
		Attempts: e.Attempts, Throttles: e.Throttles, Tries: email.TriesOf(e.Attempts, e.Throttles, h.maxAttempts),
		PossibleDuplicate: e.PossibleDuplicate, OutcomeUnknown: e.OutcomeUnknown,
		SESMessageID: e.SESMessageID, ErrorCode: e.ErrorCode, ErrorReason: e.ErrorReason, DurationMS: e.DurationMS,
		CreatedAt: e.CreatedAt.UTC(), ExpiresAt: e.ExpiresAt.UTC(), SentAt: response.InUTC(e.SentAt), FailedAt: response.InUTC(e.FailedAt),
		Priority: e.Priority, DeliveryPolicy: e.DeliveryPolicy, MailingID: e.MailingID,
		Delivery: e.Delivery, DeliveryAt: response.InUTC(e.DeliveryAt), DeliveryReason: e.DeliveryReason,
	}
	if s.Tags == nil {
		s.Tags = []string{}
	}
	if e.AggregateType != nil {
		s.Aggregate = &response.Aggregate{Type: *e.AggregateType, ID: strictjson.Or(e.AggregateID, ""), EventType: strictjson.Or(e.EventType, "")}
	}
	if e.Template != nil {
		s.Template = response.TemplateOf(*e.Template)
	}
	if e.Status.Claimable() {
		s.NextAttemptAt = response.InUTC(e.NextAt)
	}
	return s
}

// Show handles GET /v1/email/{id}: the email with its timeline.
func (h *Handlers) Show(c *gin.Context) error {
	found, err := h.find(c)
	if err != nil {
		return err
	}
	return h.answer(c, http.StatusOK, found)
}

// find finds the email with the id in the path. An email of another company and a
// malformed id are reported as not found.
func (h *Handlers) find(c *gin.Context) (emailstore.Email, error) {
	v := reqctx.StateOf(c)
	id, err := rules.ParseID(c.Param("id"))
	if err != nil {
		return emailstore.Email{}, problem.NoSuchEmail
	}
	v.OutboxID = id.String()
	return h.Read(c, id)
}

// Read finds an email of the caller, and notes it in the state of the request.
func (h *Handlers) Read(c *gin.Context, id uuid.UUID) (emailstore.Email, error) {
	v := reqctx.StateOf(c)
	found, err := h.store.FindEmail(c.Request.Context(), v.Caller.CompanyID, id)
	if err == nil {
		v.SetEmail(found)
	}
	return found, err
}

func (h *Handlers) answer(c *gin.Context, status int, found emailstore.Email) error {
	details, err := h.DetailsOf(c, found)
	if err != nil {
		return err
	}
	c.JSON(status, details)
	return nil
}

// DetailsOf adds the timeline and the attachments.
func (h *Handlers) DetailsOf(c *gin.Context, found emailstore.Email) (Details, error) {
	timeline, err := h.timeline(c.Request.Context(), reqctx.CompanyOf(c), found.ID)
	if err != nil {
		return Details{}, err
	}
	attached, err := h.Attached(c, found)
	if err != nil {
		return Details{}, err
	}
	return h.Describe(emailstore.Shown{Email: found, Timeline: timeline}, attached), nil
}

// Attached lists the attachments of an email, which are those of its mailing if it has one.
func (h *Handlers) Attached(c *gin.Context, found emailstore.Email) ([]file.Attachment, error) {
	owner := found.ID
	if found.MailingID != nil {
		owner = *found.MailingID
	}
	return h.attachments.Attachments(c.Request.Context(), reqctx.CompanyOf(c), owner)
}

// Describe describes an email that has been read.
func (h *Handlers) Describe(shown emailstore.Shown, attached []file.Attachment) Details {
	found := shown.Email
	details := Details{
		summary: h.summaryOf(found), From: strictjson.Or(found.Sender, ""), CC: found.CC, BCC: found.BCC, ReplyTo: strictjson.Or(found.ReplyTo, ""),
		SendAt: response.InUTC(found.SendAt(shown.Timeline)), Events: make([]timelineEvent, len(shown.Timeline)), Attachments: response.Attachments(attached),
	}
	for i, e := range shown.Timeline {
		if len(e.Metadata) == 0 || string(e.Metadata) == "null" {
			e.Metadata = json.RawMessage("{}")
		}
		details.Events[i] = timelineEvent{Seq: e.Seq, Type: e.Type, CreatedAt: e.CreatedAt.UTC(), Metadata: e.Metadata}
	}
	return details
}
