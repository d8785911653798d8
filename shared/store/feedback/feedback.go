package feedback

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/suppression"
)

// Feedback is one notification of the provider about an email that it accepted.
type Feedback struct {
	// NotificationID is the same each time the notification is delivered; at most 100
	// bytes.
	NotificationID string
	// Kind is what happened in the provider's words, at most 100 bytes.
	Kind         string
	SESMessageID string
	// The email's tags; uuid.Nil = it has none.
	OutboxID, AttemptID, CompanyID uuid.UUID
	OccurredAt                     time.Time
	// Event is the event to add to the timeline; "" for a notification that only confirms
	// that the email was accepted. Metadata belongs to the event and is equal for equal
	// events: two notifications of the same event add one.
	Event    email.EventType
	Metadata map[string]any
	// Masked is what the inbox keeps of Metadata: without addresses.
	Masked map[string]any
	// Suppress is the reason for which those of Addresses that the email was sent
	// to are suppressed for the company; "" = none of them.
	Suppress  suppression.Reason
	Addresses []string
	Note      string // of the suppression

	masked string // Masked as JSON
}

// Result is the effect of a Feedback.
type Result struct {
	// Repeated: the notification was recorded before. Unmatched: the attempt is unknown
	// here. In both cases nothing was changed.
	Repeated, Unmatched bool
	// Was is the email's status before.
	Was email.Status
	// Duplicate: this is the first word of one more acceptance of an email that was
	// accepted already.
	Duplicate  bool
	Suppressed int // addresses
	// The email in the log: its request, its mailing if it is of one, and its tries that count.
	RequestID string
	MailingID uuid.NullUUID
	Attempt   int
}

// Limits of a timeline: a recipient who opens an email a thousand times must not make it
// unreadable. After restlessEvents events, repeatable events (opens, clicks) are no longer added;
// after maxEvents, no event of the provider is. The inbox table has all of them.
const (
	restlessEvents = 100
	maxEvents      = 300
)

// RecordFeedback records a notification and applies it, in one commit. If it names an
// attempt of ours, the provider accepted the email, whatever its status is, so
// the email becomes SENT; the event is added to the timeline, also of an email whose
// outbox row is purged; addresses are suppressed. It may be called repeatedly, and concurrently,
// with the same notification.
func (s *Store) RecordFeedback(ctx context.Context, f Feedback) (Result, error) {
	masked, err := json.Marshal(f.Masked)
	if err != nil {
		return Result{}, fmt.Errorf("record feedback: encode: %w", err)
	}
	f.masked = string(pg.WithoutEscapedNUL(masked))
	if f.Masked == nil {
		f.masked = "{}"
	}
	row := pg.HeldRow{Company: f.CompanyID, Name: "feedback\x00" + f.OutboxID.String()}
	results, err := pg.InBoundedTx(ctx, s.db, row, func(tx *sqlx.Tx, _ time.Duration) ([]Result, error) {
		r, err := applyFeedback(ctx, tx, f)
		return []Result{r}, err
	})
	if errors.Is(err, pg.ErrBusy) || errors.Is(err, pg.ErrTries) || errors.Is(err, pg.ErrTriesOfCompany) {
		err = pg.ErrUnavailable // as for a lock that lasts too long: it comes again
	}
	if err != nil {
		return Result{}, fmt.Errorf("record feedback: %w", err)
	}
	return results[0], nil
}

func applyFeedback(ctx context.Context, tx *sqlx.Tx, f Feedback) (Result, error) {
	fresh, err := takeFeedback(ctx, tx, f)
	if err != nil || !fresh {
		return Result{Repeated: !fresh}, err
	}
	found, err := readFeedback(ctx, tx, f)
	if err != nil || !found.Attempted {
		return Result{Unmatched: !found.Attempted}, err
	}
	r := Result{Was: found.Status, RequestID: found.RequestID, MailingID: found.MailingID, Attempt: found.Attempt}
	addresses := found.among(f)
	events := found.news(f, addresses, time.Now().UTC())
	r.Duplicate = slices.ContainsFunc(events, func(e email.Event) bool { return e.Type == email.EventDuplicateConfirmed })
	switch {
	case found.Status != email.Sent && found.InOutbox:
		err = confirm(ctx, tx, f, events)
	case len(events) > 0 || found.OutcomeUnknown:
		err = appendFeedback(ctx, tx, f, events, r.Duplicate)
	}
	if err != nil {
		return r, err
	}
	if r.Suppressed, err = suppression.AddAll(ctx, tx, f.CompanyID, addresses, f.Suppress, f.Note); err != nil {
		return r, err
	}
	return r, markFeedback(ctx, tx, f)
}
