package httpapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/templates"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
)

// emailSummary is an email in a list.
type emailSummary struct {
	OutboxID          string       `json:"outboxId"`
	JobID             string       `json:"jobId"`
	RequestID         string       `json:"requestId"`
	Status            email.Status `json:"status"`
	To                string       `json:"to"`
	Subject           string       `json:"subject"`
	Tags              []string     `json:"tags"`
	RecipientID       *uuid.UUID   `json:"recipientId,omitempty"`
	ExternalID        *string      `json:"externalId,omitempty"`
	Aggregate         *aggregate   `json:"aggregate,omitempty"`
	Template          *templateRef `json:"template,omitempty"`
	Attempts          int          `json:"attempts"`
	Throttles         int          `json:"throttles"`
	Tries             email.Tries  `json:"tries"`
	PossibleDuplicate bool         `json:"possibleDuplicate"`
	OutcomeUnknown    bool         `json:"outcomeUnknown"`
	SESMessageID      *string      `json:"sesMessageId,omitempty"`
	ErrorCode         *string      `json:"errorCode,omitempty"`
	ErrorReason       *string      `json:"errorReason,omitempty"`
	DurationMS        *int         `json:"durationMs,omitempty"`
	CreatedAt         time.Time    `json:"createdAt"`
	ExpiresAt         time.Time    `json:"expiresAt"`
	NextAttemptAt     *time.Time   `json:"nextAttemptAt,omitempty"`
	SentAt            *time.Time   `json:"sentAt,omitempty"`
	FailedAt          *time.Time   `json:"failedAt,omitempty"`

	Delivery       *email.DeliveryState `json:"delivery,omitempty"`
	DeliveryAt     *time.Time           `json:"deliveryAt,omitempty"`
	DeliveryReason *string              `json:"deliveryReason,omitempty"`
}

// aggregate is the aggregate that an email belongs to.
type aggregate struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	EventType string `json:"eventType"`
}

func templateOf(ref string) *templateRef {
	name, locale, version := templates.ParseRef(ref)
	return &templateRef{Name: name, Locale: locale, Version: version}
}

// templateRef is the version of a stored template that an email was made from.
type templateRef struct {
	Name    string `json:"name"`
	Locale  string `json:"locale,omitempty"`
	Version int    `json:"version"`
}

// emailDetails is an email with its timeline.
type emailDetails struct {
	emailSummary
	From    string     `json:"from,omitempty"`
	CC      []string   `json:"cc,omitempty"`
	BCC     []string   `json:"bcc,omitempty"`
	ReplyTo string     `json:"replyTo,omitempty"`
	SendAt  *time.Time `json:"sendAt,omitempty"`
	// Attachments are listed until the email's content is deleted.
	Attachments []attachmentDetails `json:"attachments,omitempty"`
	Events      []emailEvent        `json:"events"`
}

type emailEvent struct {
	Seq       int             `json:"seq"`
	Type      email.EventType `json:"type"`
	CreatedAt time.Time       `json:"createdAt"`
	Metadata  json.RawMessage `json:"metadata"`
}

func (a *API) summaryOf(e store.Email) emailSummary {
	s := emailSummary{
		OutboxID: e.ID.String(), JobID: e.ID.String(), RequestID: e.RequestID,
		Status: e.Status, To: e.Recipient, Subject: e.Subject, Tags: e.Tags,
		RecipientID: e.RecipientID, ExternalID: e.ExternalID,
		Attempts: e.Attempts, Throttles: e.Throttles, Tries: email.TriesOf(e.Attempts, e.Throttles, a.maxAttempts),
		PossibleDuplicate: e.PossibleDuplicate, OutcomeUnknown: e.OutcomeUnknown,
		SESMessageID: e.SESMessageID, ErrorCode: e.ErrorCode, ErrorReason: e.ErrorReason, DurationMS: e.DurationMS,
		CreatedAt: e.CreatedAt.UTC(), ExpiresAt: e.ExpiresAt.UTC(), SentAt: inUTC(e.SentAt), FailedAt: inUTC(e.FailedAt),
		Delivery: e.Delivery, DeliveryAt: inUTC(e.DeliveryAt), DeliveryReason: e.DeliveryReason,
	}
	if s.Tags == nil {
		s.Tags = []string{}
	}
	if e.AggregateType != nil {
		s.Aggregate = &aggregate{Type: *e.AggregateType, ID: value(e.AggregateID, ""), EventType: value(e.EventType, "")}
	}
	if e.Template != nil {
		s.Template = templateOf(*e.Template)
	}
	if e.Status.Claimable() {
		s.NextAttemptAt = inUTC(e.NextAt)
	}
	return s
}

func inUTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	utc := t.UTC()
	return &utc
}

func (a *API) showEmail(c *gin.Context) error {
	found, err := a.findEmail(c)
	if err != nil {
		return err
	}
	return a.answerEmail(c, http.StatusOK, found)
}

// findEmail finds the email with the id in the path. An email of another company and a
// malformed id are reported as not found.
func (a *API) findEmail(c *gin.Context) (store.Email, error) {
	v := visitOf(c)
	id, err := rules.ParseID(c.Param("id"))
	if err != nil {
		return store.Email{}, noSuchEmail
	}
	v.outboxID = id.String()
	return a.readEmail(c, id)
}

func (a *API) readEmail(c *gin.Context, id uuid.UUID) (store.Email, error) {
	v := visitOf(c)
	found, err := a.store.FindEmail(c.Request.Context(), v.caller.CompanyID, id)
	if err == nil {
		v.setEmail(found)
	}
	return found, err
}

func (a *API) answerEmail(c *gin.Context, status int, found store.Email) error {
	details, err := a.detailsOf(c, found)
	if err != nil {
		return err
	}
	c.JSON(status, details)
	return nil
}

// detailsOf adds the timeline.
func (a *API) detailsOf(c *gin.Context, found store.Email) (emailDetails, error) {
	timeline, err := a.store.timelineOf(c.Request.Context(), visitOf(c).caller.CompanyID, found.ID)
	if err != nil {
		return emailDetails{}, err
	}
	owner := found.ID
	if found.MailingID != nil {
		owner = *found.MailingID
	}
	attached, err := a.files.store.Attachments(c.Request.Context(), visitOf(c).caller.CompanyID, owner)
	if err != nil {
		return emailDetails{}, err
	}
	details := emailDetails{
		emailSummary: a.summaryOf(found), From: value(found.Sender, ""), CC: found.CC, BCC: found.BCC, ReplyTo: value(found.ReplyTo, ""),
		SendAt: inUTC(found.SendAt(timeline)), Events: make([]emailEvent, len(timeline)), Attachments: detailsOfAttachments(attached),
	}
	for i, e := range timeline {
		if len(e.Metadata) == 0 || string(e.Metadata) == "null" {
			e.Metadata = json.RawMessage("{}")
		}
		details.Events[i] = emailEvent{Seq: e.Seq, Type: e.Type, CreatedAt: e.CreatedAt.UTC(), Metadata: e.Metadata}
	}
	return details, nil
}
