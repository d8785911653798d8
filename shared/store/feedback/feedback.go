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
	// NotificationID is the same for each delivery of the notification; at most 100 bytes.
	NotificationID string
	// Kind is the provider's name of the event, at most 100 bytes.
	Kind         string
	SESMessageID string
	// The email's tags; uuid.Nil = none.
	OutboxID, AttemptID, CompanyID uuid.UUID
	OccurredAt                     time.Time
	// Event is the event to add to the timeline; "" for a notification that only confirms
	// that the email was accepted. Metadata belongs to the event and is equal for equal
	// events: two notifications of the same event add one.
	Event    email.EventType
	Metadata map[string]any
	// Masked is Metadata without addresses. The inbox stores only Masked.
	Masked map[string]any
	// Suppress is the reason for suppressing those of Addresses to which the email was sent; "" =
	// none is suppressed.
	Suppress  suppression.Reason
	Addresses []string
	Note      string // of the suppression

	masked string // Masked as JSON
}

// Result is the effect of a Feedback.
type Result struct {
	// Repeated: the notification was recorded before; nothing was changed. Unmatched: the attempt is
	// unknown; the notification was recorded but not applied.
	Repeated, Unmatched bool
	// Was is the email's status before.
	Was email.Status
	// Duplicate: this is the first notification of another acceptance of an email that was already
	// accepted.
	Duplicate  bool
	Suppressed int // addresses
	// The email in the log: its request, its mailing, if any, and its attempts without throttled ones.
	RequestID string
	MailingID uuid.NullUUID
	Attempt   int
}

// Limits of a timeline: a recipient who opens an email a thousand times must not make it
// unreadable. After restlessEvents events, repeatable events (opens, clicks, delays) are no longer
// added; after maxEvents, no reported event is. The inbox table contains all of them.
const (
	restlessEvents = 100
	maxEvents      = 300
)

// RecordFeedback records a notification and applies it, in one commit. If the notification names a
// known attempt, the provider has accepted the email: RecordFeedback makes the email SENT, whatever
// its status is, adds the event to the timeline, even if the outbox row is purged, and suppresses
// addresses. It is idempotent, also for concurrent calls with the same notification.
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
		err = pg.ErrUnavailable // as after a lock timeout: the notification is delivered again
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
