package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

func (c *control) email() *cobra.Command {
	cmd := group("email", "Look an email up, and be told why it is not sent yet",
		"An email is named by the outboxId of its 202 answer, whichever company it is of.",
		`  gatewayctl email show 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b
  gatewayctl email explain 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b`)
	cmd.AddCommand(c.emailShow(), c.emailExplain())
	return cmd
}

// findEmail reads the email that an operator means.
func findEmail(ctx context.Context, s *store.Store, given string) (store.Situation, error) {
	id, err := uuid.Parse(given)
	if err != nil {
		return store.Situation{}, usagef("%q is not an email's id: give the outboxId of its 202 answer", given)
	}
	found, err := s.FindSituation(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return store.Situation{}, fmt.Errorf("there is no email %s: is it the outboxId of a 202 answer, and DATABASE_URL the right database?", id)
	}
	return found, err
}

func (c *control) emailShow() *cobra.Command {
	var reveal bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show an email and its timeline",
		Long: `Shows where an email stands, and every step it has taken. Addresses are masked, those in
the provider's messages too; --reveal shows them.`,
		Example: "  gatewayctl email show 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    needs("ID"),
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			found, err := findEmail(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			events, err := s.Timeline(ctx, found.ID)
			if err != nil {
				return nil, err
			}
			return viewEmail(found, events, reveal)
		}),
	}
	cmd.Flags().BoolVar(&reveal, "reveal", false, "show addresses in full")
	return cmd
}

// emailView is an email as show tells it. The names are those of the HTTP API.
type emailView struct {
	ID                uuid.UUID    `json:"outboxId"`
	CompanyID         uuid.UUID    `json:"companyId"`
	Company           string       `json:"company"`
	Status            email.Status `json:"status"`
	To                string       `json:"to"` // masked unless asked otherwise
	RecipientID       *uuid.UUID   `json:"recipientId,omitempty"`
	ExternalID        string       `json:"externalId,omitempty"`
	Subject           string       `json:"subject"`
	Tags              []string     `json:"tags"`
	RequestID         string       `json:"requestId"`
	Attempts          int          `json:"attempts"`
	Throttles         int          `json:"throttles"`
	PossibleDuplicate bool         `json:"possibleDuplicate"`
	OutcomeUnknown    bool         `json:"outcomeUnknown"`
	SESMessageID      string       `json:"sesMessageId,omitempty"`
	ErrorCode         string       `json:"errorCode,omitempty"`
	ErrorReason       string       `json:"errorReason,omitempty"`
	DurationMS        *int         `json:"durationMs,omitempty"`
	CreatedAt         time.Time    `json:"createdAt"`
	ExpiresAt         time.Time    `json:"expiresAt"`
	NextAt            *time.Time   `json:"nextAttemptAt,omitempty"` // only while it waits
	SentAt            *time.Time   `json:"sentAt,omitempty"`
	FailedAt          *time.Time   `json:"failedAt,omitempty"`
	Events            []eventView  `json:"events"`

	now    time.Time
	masked bool
}

func viewEmail(s store.Situation, events []store.TimelineEvent, reveal bool) (emailView, error) {
	v := emailView{
		ID: s.ID, CompanyID: s.CompanyID, Company: s.CompanyName, Status: s.Status, To: s.Recipient,
		RecipientID: s.RecipientID, ExternalID: text(s.ExternalID), Subject: s.Subject, Tags: append([]string{}, s.Tags...), RequestID: s.RequestID,
		Attempts: s.Attempts, Throttles: s.Throttles, PossibleDuplicate: s.PossibleDuplicate, OutcomeUnknown: s.OutcomeUnknown,
		SESMessageID: text(s.SESMessageID), ErrorCode: text(s.ErrorCode), ErrorReason: text(s.ErrorReason), DurationMS: s.DurationMS,
		CreatedAt: s.CreatedAt.UTC(), ExpiresAt: s.ExpiresAt.UTC(), SentAt: inUTC(s.SentAt), FailedAt: inUTC(s.FailedAt),
		now: s.AskedAt, masked: !reveal,
	}
	if s.Status.Claimable() {
		v.NextAt = inUTC(s.NextAt)
	}
	if v.masked {
		v.To, v.ErrorReason = email.MaskAddress(v.To), email.MaskText(v.ErrorReason)
	}
	var err error
	v.Events, err = viewTimeline(events, v.masked)
	return v, err
}

func (v emailView) text(w io.Writer) {
	fmt.Fprintf(w, "Email %s is %s\n\n", v.ID, v.Status)
	rows := [][]string{
		{"company", v.Company + " (" + v.CompanyID.String() + ")"},
		{"to", v.To},
		{"subject", v.Subject},
		{"request", v.RequestID},
	}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	add("external id", v.ExternalID)
	add("tags", strings.Join(v.Tags, ", "))
	add("tries", v.tries())
	add("accepted", moment(v.CreatedAt, v.now))
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
	add("SES id", v.SESMessageID)
	add("last error", failure(v.ErrorCode, v.ErrorReason))
	if v.PossibleDuplicate {
		add("duplicate", "possible: the outcome of an earlier try was never known")
	}
	if v.OutcomeUnknown && !v.PossibleDuplicate {
		add("outcome", "unknown: the provider may have taken it")
	}
	table(w, "  ", rows)
	fmt.Fprintln(w)
	writeTimeline(w, v.CreatedAt, v.Events)
	if v.masked {
		fmt.Fprintln(w, "\nAddresses are masked; --reveal shows them.")
	}
}

// tries counts as the limit does: what ended in a quota is told apart.
func (v emailView) tries() string {
	text := fmt.Sprintf("%d of %d", v.Attempts-v.Throttles, email.MaxAttempts)
	if v.Throttles > 0 {
		text += fmt.Sprintf(", and %d that met a quota", v.Throttles)
	}
	return text
}

// failure is a code with the reason behind it, to end a sentence or a cell with.
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

// text is what a column that may be NULL holds.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
