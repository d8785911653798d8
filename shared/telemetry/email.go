package telemetry

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
)

// Email has the fields of a log line about an email. Unknown fields are omitted.
type Email struct {
	OutboxID, RequestID, CompanyID, MailingID string
	Attempt                                   int // as EMAIL_MAX_ATTEMPTS counts; 0 before the first
	// State returns the email's state when a line is written. A line may set another one.
	State func() string
	// Since is the start of the work on the email, from which durationMs is measured.
	Since time.Time
	// Recipient is logged masked; the zero value means no recipient.
	Recipient email.JobRecipient
}

// EmailOf returns the email of a task, as far as its payload can be parsed. Fields without their
// required format are omitted, because they may contain anything.
func EmailOf(taskID string, payload []byte) Email {
	var job email.SendJob
	_ = json.Unmarshal(payload, &job) // sets the fields that it can parse
	e := Email{OutboxID: taskID, RequestID: email.MaskText(job.RequestID), Attempt: job.Attempt, Recipient: job.Recipient}
	e.MailingID, _ = job.Mailing()
	if _, err := uuid.Parse(job.CompanyID); err == nil {
		e.CompanyID = job.CompanyID
	}
	if _, err := uuid.Parse(job.OutboxID); err == nil && taskID == "" {
		e.OutboxID = job.OutboxID
	}
	if !email.IsSHA256(e.Recipient.CPFCNPJHash) {
		e.Recipient.CPFCNPJHash = ""
	}
	return e
}

// In returns a constant state, for Email.State.
func In[S ~string](state S) func() string { return func() string { return string(state) } }

// ID formats an id, "" for none.
func ID(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

// MaxIDs bounds a line about many emails: 100 ids are 4 kB, and Docker splits lines of 16 kB.
const MaxIDs = 100

// IDs is the value of outboxId in a line about n emails: one id, or a list of at most MaxIDs.
func IDs(n int, id func(i int) string) any {
	if n == 1 {
		return id(0)
	}
	ids := make([]string, 0, min(n, MaxIDs))
	for i := range cap(ids) {
		ids = append(ids, id(i))
	}
	return ids
}

// EmailLogger returns the logger of an email: each line has outboxId, requestId, companyId,
// attempt, state and durationMs, for an email of a mailing mailingId, and the recipient's masked
// address and hash if the recipient is known.
func EmailLogger(log *slog.Logger, e Email) *slog.Logger {
	attrs := make([]any, 0, 6)
	for _, field := range [...]struct{ name, value string }{
		{OutboxID, e.OutboxID}, {RequestID, e.RequestID}, {CompanyID, e.CompanyID}, {MailingID, e.MailingID},
	} {
		if field.value != "" {
			attrs = append(attrs, slog.String(field.name, field.value))
		}
	}
	attrs = append(attrs, slog.Int(Attempt, e.Attempt))
	if r := e.Recipient; r.Email != "" {
		masked := []any{slog.String("email", email.MaskAddress(r.Email))}
		if r.CPFCNPJHash != "" {
			masked = append(masked, slog.String("cpfCnpjHash", email.MaskHash(r.CPFCNPJHash)))
		}
		attrs = append(attrs, slog.Group("recipient", masked...))
	}
	return slog.New(emailHandler{Handler: log.Handler(), state: e.State, since: e.Since}).With(attrs...)
}

// emailHandler adds the variable fields to a line, unless the line has them.
type emailHandler struct {
	slog.Handler
	state func() string
	since time.Time
}

func (h emailHandler) Handle(ctx context.Context, r slog.Record) error {
	hasState, hasDuration := h.state == nil, h.since.IsZero()
	r.Attrs(func(a slog.Attr) bool {
		hasState = hasState || a.Key == State
		hasDuration = hasDuration || a.Key == DurationMS
		return true
	})
	if !hasState || !hasDuration {
		r = r.Clone()
	}
	if !hasState {
		r.AddAttrs(slog.String(State, h.state()))
	}
	if !hasDuration {
		r.AddAttrs(slog.Int64(DurationMS, time.Since(h.since).Milliseconds()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h emailHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h emailHandler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}
