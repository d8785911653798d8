package feedback

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
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
	OutboxID, AttemptID, CompanyID, InstallationID uuid.UUID
	OccurredAt                                     time.Time
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
	// OnAccountList: the provider did not send the email, because the address is on the suppression list of its account.
	OnAccountList bool

	masked, metadata []byte // Masked and Metadata as JSON
}

// Result is the effect of a Feedback.
type Result struct {
	// Repeated: the notification was applied before. Unmatched: the company has no such email, or another installation sent
	// it. Nothing was changed.
	Repeated, Unmatched bool
	// PreviousStatus is the email's status before.
	PreviousStatus email.Status
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
// unreadable. After repeatableLimit reported events, repeatable ones (opens, clicks, delays) are no longer
// added; after maxEvents, none is. The inbox table contains all of them. The gateway's own steps do not count: an email
// that was tried often must not lose its bounce.
const (
	repeatableLimit = 100
	maxEvents       = 300
)

// RecordFeedback records a notification and applies it, in one commit. If the notification names an
// email and its company, the provider has accepted the email: RecordFeedback makes the email SENT, whatever
// its status is, also if no row of this database has the attempt (the claim is lost after the promotion of a standby that
// had not received it), adds the event to the timeline, even if the outbox row is purged, and suppresses
// addresses. It is idempotent, also for concurrent calls with the same notification.
//
// Notifications that arrive at the same time are recorded in groups, in which companies take turns. One that suppresses
// addresses, or whose email another transaction has locked, is recorded alone and waits for locks.
func (s *Store) RecordFeedback(ctx context.Context, f Feedback) (Result, error) {
	f, err := f.encoded()
	if err != nil {
		return Result{}, fmt.Errorf("record feedback: %w", err)
	}
	var done recorded
	if f.Suppress == "" {
		done, err = s.group.Do(ctx, f)
	}
	if f.Suppress != "" || done.locked || pg.IsLockTimeout(err) {
		done, err = s.recordOne(ctx, f)
	}
	return done.Result, pg.Wrap("record feedback", err)
}

// encoded returns the notification with its JSON and texts encoded for the statements. The caller's goroutine calls it,
// and not the group's, so that one that cannot be encoded does not fail the others of its group.
func (f Feedback) encoded() (Feedback, error) {
	masked, err := json.Marshal(f.Masked)
	if err != nil {
		return f, fmt.Errorf("encode: %w", err)
	}
	if f.Masked == nil {
		masked = []byte("{}")
	}
	metadata, err := json.Marshal(f.Metadata)
	if err != nil {
		return f, fmt.Errorf("encode: %w", err)
	}
	f.masked, f.metadata = pgtext.WithoutEscapedNUL(masked), pgtext.WithoutEscapedNUL(metadata)
	f.Kind, f.SESMessageID = pgtext.WithoutNUL(f.Kind), pgtext.WithoutNUL(f.SESMessageID)
	return f, nil
}

// withoutAddresses returns the JSON of the event's metadata as the timeline contains it if the email's rows lack an address.
func (f Feedback) withoutAddresses() []byte {
	if f.Masked == nil {
		return f.metadata
	}
	return f.masked
}

// subject returns what the notification is about: no group has two notifications about one email, so that the second one
// sees the effect of the first.
func (f Feedback) subject() string {
	if f.OutboxID == uuid.Nil {
		return f.NotificationID
	}
	return f.OutboxID.String()
}

// size estimates the bytes of the notification's parameters. The ids, the time and the names make about a quarter of a KiB.
func (f Feedback) size() int { return 256 + len(f.masked) + len(f.metadata) }
