package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

func (c *control) email() *cobra.Command {
	cmd := group("email", "Send, find and manage emails, and explain why one is not sent yet",
		`An email is identified by the outboxId of its 202 response. An operator can look up emails of
any company, a tenant its own.`,
		`  gatewayctl email send --to maria@cliente.example --external-id CUST-42 --subject 'Olá' --html-file ola.html
  gatewayctl email show 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b
  gatewayctl email explain 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b`)
	cmd.AddCommand(c.emailSend(), c.emailSendBatch(), c.emailList(), c.emailShow(), c.emailExplain(), c.emailCancel(), c.emailRetry())
	return cmd
}

// emailPath is the api's route of emails.
const emailPath = "/v1/email"

// parseEmail parses the id of an email.
func parseEmail(given string) (uuid.UUID, error) {
	id, err := uuid.Parse(given)
	if err != nil {
		return uuid.Nil, usagef("%q is not an email id: give the outboxId of the 202 response", given)
	}
	return id, nil
}

// findEmail finds any company's email by its id.
func findEmail(ctx context.Context, s *store.Store, given string) (store.EmailDiagnosis, error) {
	id, err := parseEmail(given)
	if err != nil {
		return store.EmailDiagnosis{}, err
	}
	found, err := s.FindEmailDiagnosis(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return store.EmailDiagnosis{}, fmt.Errorf("email %s not found: check that it is the outboxId of a 202 response and that DATABASE_URL is the right database", id)
	}
	return found, err
}

func (c *control) emailShow() *cobra.Command {
	var reveal bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show an email and its timeline",
		Long: `Shows an email's status and its timeline. An operator sees addresses masked, including those
in the provider's messages; --reveal shows them and writes an audit entry.
` + accessHelp,
		Example: "  gatewayctl email show 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    exactArgs("ID"), ValidArgsFunction: c.completeEmails(),
	}
	cmd.Flags().BoolVar(&reveal, "reveal", false, "operators only: show addresses in full; writes an audit entry")
	return c.operatorOrTenant(cmd, operatorOrTenant{
		operator: func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			found, err := findEmail(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			if err := c.revealed(ctx, s, reveal, "email", found.CompanyID, found.ID.String()); err != nil {
				return nil, err
			}
			events, err := s.Timeline(ctx, found.ID)
			if err != nil {
				return nil, err
			}
			allowed, err := c.attempts()
			if err != nil {
				return nil, err
			}
			return viewEmail(found, events, allowed, reveal)
		},
		tenant: func(ctx context.Context, api *client.Client, args []string) (answer, error) {
			id, err := parseEmail(args[0])
			if err != nil {
				return nil, err
			}
			return fetchEmail(ctx, api, id)
		},
	})
}

// revealed writes an audit entry if addresses are to be shown in full.
func (c *control) revealed(ctx context.Context, s *store.Store, reveal bool, what string, company uuid.UUID, subject string) error {
	if !reveal {
		return nil
	}
	by, err := c.operatorIdentity("")
	if err != nil {
		return err
	}
	return s.RecordReveal(ctx, by, what, company, subject)
}

// fetchEmail reads one of the tenant's own emails over the HTTP API.
func fetchEmail(ctx context.Context, api *client.Client, id uuid.UUID) (emailView, error) {
	v := emailView{now: time.Now()}
	err := api.Get(ctx, emailPath+"/"+id.String(), nil, &v)
	return v, err
}

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

	Delivery       email.DeliveryState `json:"delivery,omitempty"`
	DeliveryAt     *time.Time          `json:"deliveryAt,omitempty"`
	DeliveryReason string              `json:"deliveryReason,omitempty"` // addresses in it are masked
}

// emailView is an email with its timeline.
type emailView struct {
	emailSummary
	From    string      `json:"from,omitempty"`
	CC      []string    `json:"cc,omitempty"`
	BCC     []string    `json:"bcc,omitempty"`
	ReplyTo string      `json:"replyTo,omitempty"`
	SendAt  *time.Time  `json:"sendAt,omitempty"`
	Events  []eventView `json:"events"`
	// Attachments are only a tenant's to see: the operator's database role cannot read them.
	Attachments []attachedFile `json:"attachments,omitempty"`

	now    time.Time
	masked bool
}

func viewEmail(s store.EmailDiagnosis, events []store.TimelineEvent, allowed int, reveal bool) (emailView, error) {
	v := emailView{
		emailSummary: summarize(s.Email, allowed, !reveal), From: text(s.Sender), CC: s.CC, BCC: s.BCC, ReplyTo: text(s.ReplyTo),
		SendAt: inUTC(s.SendAt(events)), now: s.AskedAt, masked: !reveal,
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
	v.Events, err = viewTimeline(events, v.masked)
	return v, err
}

func summarize(e store.Email, allowed int, masked bool) emailSummary {
	v := emailSummary{
		ID: e.ID, Status: e.Status, To: e.Recipient,
		RecipientID: e.RecipientID, ExternalID: text(e.ExternalID), Subject: e.Subject, Tags: append([]string{}, e.Tags...), RequestID: e.RequestID,
		Attempts: e.Attempts, Throttles: e.Throttles, Tries: email.TriesOf(e.Attempts, e.Throttles, allowed), PossibleDuplicate: e.PossibleDuplicate, OutcomeUnknown: e.OutcomeUnknown,
		SESMessageID: text(e.SESMessageID), ErrorCode: text(e.ErrorCode), ErrorReason: text(e.ErrorReason), DurationMS: e.DurationMS,
		CreatedAt: e.CreatedAt.UTC(), ExpiresAt: e.ExpiresAt.UTC(), SentAt: inUTC(e.SentAt), FailedAt: inUTC(e.FailedAt),
		DeliveryAt: inUTC(e.DeliveryAt), DeliveryReason: text(e.DeliveryReason),
	}
	if e.Delivery != nil {
		v.Delivery = *e.Delivery
	}
	if e.Status.Claimable() {
		v.NextAt = inUTC(e.NextAt)
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
		line += ", " + moment(*v.DeliveryAt, v.now)
	}
	if v.DeliveryReason != "" {
		line += ": " + v.DeliveryReason
	}
	return line
}

func (v emailView) text(w io.Writer) {
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
	rows = append(rows, attachmentRows(v.Attachments)...)
	add("request", v.RequestID)
	add("external id", v.ExternalID)
	add("tags", strings.Join(v.Tags, ", "))
	add("tries", v.Tries.String())
	add("accepted", moment(v.CreatedAt, v.now))
	if v.SendAt != nil {
		add("scheduled", moment(*v.SendAt, v.now))
	}
	if !v.Status.Final() {
		add("deadline", moment(v.ExpiresAt, v.now))
	}
	if v.NextAt != nil {
		add("due", moment(*v.NextAt, v.now))
	}
	if v.SentAt != nil {
		add("sent", moment(*v.SentAt, v.now)+", "+span(v.SentAt.Sub(v.CreatedAt))+" after it was accepted")
	}
	if v.FailedAt != nil {
		add("failed", moment(*v.FailedAt, v.now))
	}
	add("delivery", v.delivery())
	add("SES id", v.SESMessageID)
	add("last error", failure(v.ErrorCode, v.ErrorReason))
	if v.PossibleDuplicate {
		add("duplicate", "possible: the outcome of an earlier try is unknown")
	}
	if v.OutcomeUnknown && !v.PossibleDuplicate {
		add("outcome", "unknown: the provider may have accepted it")
	}
	table(w, "  ", rows)
	fmt.Fprintln(w)
	writeTimeline(w, v.CreatedAt, v.Events, v.Tries.Allowed)
	if v.masked {
		fmt.Fprintln(w, "\nAddresses are masked; --reveal shows them.")
	}
}

// attempts returns EMAIL_MAX_ATTEMPTS, with the default of the api and worker.
func (c *control) attempts() (int, error) {
	allowed, err := strconv.Atoi(cmp.Or(c.Getenv("EMAIL_MAX_ATTEMPTS"), strconv.Itoa(email.MaxAttempts)))
	if err != nil {
		return 0, usagef("EMAIL_MAX_ATTEMPTS must be a number")
	}
	return allowed, nil
}

// failure joins a code and its reason.
func failure(code, reason string) string {
	reason = strings.TrimRight(reason, ". ")
	if code == "" || reason == "" {
		return code + reason
	}
	return code + ": " + reason
}

func inUTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	utc := t.UTC()
	return &utc
}

// text returns the value of a nullable column.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
