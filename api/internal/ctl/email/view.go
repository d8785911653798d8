package email

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/ctl/attachment"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/timeline"
	"email-gateway/shared/email"
	"email-gateway/shared/store/emails"
)

// emailSummary is an email as list prints it. Its JSON names are those of the HTTP API.
type emailSummary struct {
	ID                uuid.UUID    `json:"outboxId"`
	CompanyID         *uuid.UUID   `json:"companyId,omitempty"` // operators only
	Company           string       `json:"company,omitempty"`
	Status            email.Status `json:"status"`
	To                string       `json:"to"` // masked for operators unless --reveal
	RecipientID       *uuid.UUID   `json:"recipientId,omitempty"`
	ExternalID        string       `json:"externalId,omitempty"`
	Subject           string       `json:"subject"`
	Tags              []string     `json:"tags"`
	RequestID         string       `json:"requestId"`
	Attempts          int          `json:"attempts"`
	Throttles         int          `json:"throttles"`
	Tries             email.Tries  `json:"tries"`
	PossibleDuplicate bool         `json:"possibleDuplicate"`
	OutcomeUnknown    bool         `json:"outcomeUnknown"`
	SESMessageID      string       `json:"sesMessageId,omitempty"`
	ErrorCode         string       `json:"errorCode,omitempty"`
	ErrorReason       string       `json:"errorReason,omitempty"`
	DurationMS        *int         `json:"durationMs,omitempty"`
	CreatedAt         time.Time    `json:"createdAt"`
	ExpiresAt         time.Time    `json:"expiresAt"`
	NextAt            *time.Time   `json:"nextAttemptAt,omitempty"` // only while it is waiting
	SentAt            *time.Time   `json:"sentAt,omitempty"`
	FailedAt          *time.Time   `json:"failedAt,omitempty"`

	Priority       *int            `json:"priority,omitempty"`
	DeliveryPolicy *email.Delivery `json:"deliveryPolicy,omitempty"`
	MailingID      *uuid.UUID      `json:"mailingId,omitempty"`

	Delivery       email.DeliveryState `json:"delivery,omitempty"`
	DeliveryAt     *time.Time          `json:"deliveryAt,omitempty"`
	DeliveryReason string              `json:"deliveryReason,omitempty"` // addresses in it are masked
}

// emailView is an email with its timeline.
type emailView struct {
	emailSummary
	From    string           `json:"from,omitempty"`
	CC      []string         `json:"cc,omitempty"`
	BCC     []string         `json:"bcc,omitempty"`
	ReplyTo string           `json:"replyTo,omitempty"`
	SendAt  *time.Time       `json:"sendAt,omitempty"`
	Events  []timeline.Event `json:"events"`
	// Attachments are only a tenant's to see: the operator's database role cannot read them.
	Attachments []attachment.File `json:"attachments,omitempty"`

	now    time.Time
	masked bool
}

func viewEmail(s emails.Diagnosis, events []emails.TimelineEvent, allowed int, reveal bool) (emailView, error) {
	v := emailView{
		emailSummary: summarize(s.Email, allowed, !reveal), From: output.Optional(s.Sender), CC: s.CC, BCC: s.BCC, ReplyTo: output.Optional(s.ReplyTo),
		SendAt: output.UTC(s.SendAt(events)), now: s.AskedAt, masked: !reveal,
	}
	if v.masked {
		v.From, v.ReplyTo = email.MaskText(v.From), email.MaskText(v.ReplyTo)
		for _, copies := range [][]string{v.CC, v.BCC} {
			for i := range copies {
				copies[i] = email.MaskAddress(copies[i])
			}
		}
	}
	v.CompanyID, v.Company = &s.CompanyID, s.CompanyName
	var err error
	v.Events, err = timeline.Events(events, v.masked)
	return v, err
}

func summarize(e emails.Email, allowed int, masked bool) emailSummary {
	v := emailSummary{
		ID: e.ID, Status: e.Status, To: e.Recipient,
		RecipientID: e.RecipientID, ExternalID: output.Optional(e.ExternalID), Subject: e.Subject, Tags: append([]string{}, e.Tags...), RequestID: e.RequestID,
		Attempts: e.Attempts, Throttles: e.Throttles, Tries: email.TriesOf(e.Attempts, e.Throttles, allowed), PossibleDuplicate: e.PossibleDuplicate, OutcomeUnknown: e.OutcomeUnknown,
		SESMessageID: output.Optional(e.SESMessageID), ErrorCode: output.Optional(e.ErrorCode), ErrorReason: output.Optional(e.ErrorReason), DurationMS: e.DurationMS,
		CreatedAt: e.CreatedAt.UTC(), ExpiresAt: e.ExpiresAt.UTC(), SentAt: output.UTC(e.SentAt), FailedAt: output.UTC(e.FailedAt),
		Priority: e.Priority, DeliveryPolicy: e.DeliveryPolicy, MailingID: e.MailingID,
		DeliveryAt: output.UTC(e.DeliveryAt), DeliveryReason: output.Optional(e.DeliveryReason),
	}
	if e.Delivery != nil {
		v.Delivery = *e.Delivery
	}
	if e.Status.Claimable() {
		v.NextAt = output.UTC(e.NextAt)
	}
	if masked {
		v.To, v.ErrorReason = email.MaskAddress(v.To), email.MaskText(v.ErrorReason)
		// Tenants' own fields may contain addresses: many use them as customer ids.
		v.ExternalID, v.Subject = email.MaskText(v.ExternalID), email.MaskText(v.Subject)
		for i := range v.Tags {
			v.Tags[i] = email.MaskText(v.Tags[i])
		}
	}
	return v
}

// delivery is the delivery state with its time and reason, "" before the email is sent.
func (v emailView) delivery() string {
	line := string(v.Delivery)
	if v.DeliveryAt != nil {
		line += ", " + output.RelativeTime(*v.DeliveryAt, v.now)
	}
	if v.DeliveryReason != "" {
		line += ": " + v.DeliveryReason
	}
	return line
}

// time is "" for a time that the email does not have.
func (v emailView) time(t *time.Time) string {
	if t == nil {
		return ""
	}
	return output.RelativeTime(*t, v.now)
}

func (v emailView) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Email %s is %s\n\n", v.ID, v.Status)
	var rows [][]string
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	if v.CompanyID != nil {
		add("company", v.Company+" ("+v.CompanyID.String()+")")
	}
	add("from", v.From)
	add("to", v.To)
	add("cc", strings.Join(v.CC, ", "))
	add("bcc", strings.Join(v.BCC, ", "))
	add("reply to", v.ReplyTo)
	add("subject", v.Subject)
	rows = append(rows, attachment.Rows(v.Attachments)...)
	add("request", v.RequestID)
	add("external id", v.ExternalID)
	add("tags", strings.Join(v.Tags, ", "))
	if v.MailingID != nil {
		add("mailing", v.MailingID.String())
	}
	if v.Priority != nil {
		add("priority", strconv.Itoa(*v.Priority))
	}
	add("delivery policy", output.Optional(v.DeliveryPolicy))
	add("tries", v.Tries.String())
	add("accepted", output.RelativeTime(v.CreatedAt, v.now))
	add("scheduled", v.time(v.SendAt))
	if !v.Status.Final() {
		deadline := output.RelativeTime(v.ExpiresAt, v.now)
		if emails.NoDeadline(v.ExpiresAt, v.now) {
			deadline = "none until its first try"
		}
		add("deadline", deadline)
	}
	add("due", v.time(v.NextAt))
	if v.SentAt != nil {
		add("sent", output.RelativeTime(*v.SentAt, v.now)+", "+output.Duration(v.SentAt.Sub(v.CreatedAt))+" after it was accepted")
	}
	add("failed", v.time(v.FailedAt))
	add("delivery", v.delivery())
	add("SES id", v.SESMessageID)
	add("last error", output.CodeAndReason(v.ErrorCode, v.ErrorReason))
	if v.PossibleDuplicate {
		add("duplicate", "possible: the outcome of an earlier try is unknown")
	}
	if v.OutcomeUnknown && !v.PossibleDuplicate {
		add("outcome", "unknown: the provider may have accepted it")
	}
	output.Table(w, "  ", rows)
	fmt.Fprintln(w)
	timeline.Write(w, v.CreatedAt, v.Events, v.Tries.Allowed)
	if v.masked {
		fmt.Fprintln(w, "\nAddresses are masked; --reveal shows them.")
	}
}
