package pipeline

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"time"
	"unicode/utf8"

	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/store/outbox"
	"email-gateway/worker/internal/queue"
)

// refusal is a failed validation. It is permanent.
type refusal struct {
	validation email.Validation
	code       string
	reason     string
}

// validations lists the four checks in order. OUTBOX is made by open: an email that fails it never
// has an attempt.
func validations() []email.Validation {
	return []email.Validation{
		email.ValidationIntegrity, email.ValidationOutbox, email.ValidationRecipient, email.ValidationTemplate,
	}
}

func validate(a *attempt, maxAttempts int) *refusal {
	if err := checkIntegrity(a, maxAttempts); err != nil {
		return &refusal{email.ValidationIntegrity, email.CodeInvalidPayload, err.Error()}
	}
	if code, err := checkRecipient(a); err != nil {
		return &refusal{email.ValidationRecipient, code, err.Error()}
	}
	if err := checkTemplate(a); err != nil {
		return &refusal{email.ValidationTemplate, email.CodeInvalidTemplate, err.Error()}
	}
	return nil
}

// checkIntegrity validates the payloads of the task and of the outbox row.
func checkIntegrity(a *attempt, maxAttempts int) error {
	if err := a.task.Validate(maxAttempts); err != nil {
		return err
	}
	if a.unreadable != nil {
		return a.unreadable
	}
	if a.job.OutboxID != a.row.ID.String() || a.job.CompanyID != a.row.CompanyID.String() {
		return errors.New("the outbox row's payload names another email")
	}
	return nil
}

func checkRecipient(a *attempt) (code string, err error) {
	if a.job.Recipient.RecipientID != "" && !a.row.RecipientKnown {
		return email.CodeRecipientNotFound, errors.New("recipientId is unknown, deleted, or has another address")
	}
	if err := email.CheckAddress(a.job.To); err != nil {
		return email.CodeInvalidEmail, err
	}
	return "", nil
}

// checkTemplate validates the body that will be sent. The result stored on acceptance stays valid
// while body and checker version are unchanged; otherwise the body is checked again.
func checkTemplate(a *attempt) error {
	subject := utf8.RuneCountInString(a.job.Subject)
	switch {
	case a.unrenderable != nil:
		return a.unrenderable
	case a.html == "" && a.text == "":
		return errors.New("html and text are empty")
	case len(a.html) > email.MaxHTML:
		return errors.New("html is larger than 512 KiB")
	case len(a.text) > email.MaxHTML:
		return errors.New("text is larger than 512 KiB")
	case subject == 0 || subject > email.MaxSubject:
		return errors.New("subject must have 1 to 150 characters")
	case a.html == "", a.row.MailingID.Valid: // a mailing's template has been checked
		return nil
	}
	sum := sha256.Sum256([]byte(a.html))
	if a.row.CheckerVersion == int(htmlcheck.Version) && subtle.ConstantTimeCompare(sum[:], a.row.HTMLSHA256) == 1 {
		return nil
	}
	return htmlcheck.Check(a.html)
}

// refuse fails an email that did not pass a validation. RECEIVED, VALIDATION_FAILED and FAILED are
// written in one commit.
func (p *Pipeline) refuse(ctx context.Context, log *slog.Logger, a *attempt, r *refusal) error {
	now := time.Now()
	t := a.transition(outbox.GuardClaim, email.Failed)
	t.AddAttempts, t.DeadLetter = 1, true
	t.ErrorCode, t.ErrorReason = r.code, r.reason
	t.Duration = max(now.Sub(a.received), time.Millisecond)
	t.Events = []email.Event{
		a.receivedEvent(),
		event(email.EventValidationFailed, now, map[string]any{
			"validation": r.validation, "errorCode": r.code, "errorMessage": r.reason,
		}),
		event(email.EventFailed, now, map[string]any{
			"errorCode": r.code, "errorCategory": "VALIDATION_ERROR", "errorMessage": r.reason, "willRetry": false,
		}),
	}
	if applied, err := p.endUnclaimed(ctx, log, a, t); !applied {
		return err
	}
	a.reach(email.EventValidationFailed)
	p.Metrics.reached(a.reached)
	p.Metrics.validationFailed(r.validation)
	p.recorder.ended(log.With("code", r.code, "validation", r.validation), a, email.Failed)
	return &queue.Dead{Reason: r.code + ": " + email.MaskText(r.reason)}
}
