package feedback

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/suppression"
)

// subject is the email that a notification is about.
type subject struct {
	OutboxID     uuid.UUID      `db:"outbox_id"`
	InOutbox     bool           `db:"in_outbox"`
	Status       email.Status   `db:"status"`
	SESMessageID string         `db:"ses_message_id"`
	Recipients   pq.StringArray `db:"recipients"`
	// Reported is how many reported events the timeline contains.
	Reported int `db:"reported"`
	// OutcomeUnknown: the outcome of an attempt was unknown before this notification.
	OutcomeUnknown bool `db:"outcome_unknown"`
	// EventRecorded: the timeline contains the event already, from another notification, maybe without addresses.
	EventRecorded bool `db:"told"`
	// DuplicateRecorded: the timeline already records the message id as another acceptance.
	DuplicateRecorded bool `db:"doubled"`
	// Erased: the email's addressees are no longer recorded.
	Erased bool `db:"erased"`
	// Copied: the email had recipients in cc or bcc; they may have been erased since.
	Copied bool `db:"copied"`

	RequestID string        `db:"request_id"`
	MailingID uuid.NullUUID `db:"mailing_id"`
	Attempt   int           `db:"attempt"`
}

// readParameters are the parameters of read_feedback.sql.
var readParameters = pg.Parameters[groupScalars, Feedback]{
	Scalars: scalars,
	Columns: []pg.Column[Feedback]{
		pg.Each("outbox_id", "uuid", pg.OptionalUUIDs, emailOf),
		pg.Each("event", "text", pg.Texts, func(f *Feedback) string { return string(f.Event) }),
		pg.Each("metadata", "jsonb", pg.JSONBs, func(f *Feedback) []byte { return f.metadata }),
		pg.Each("stored", "jsonb", pg.JSONBs, func(f *Feedback) []byte { return f.withoutAddresses() }),
		pg.Each("message_id", "text", pg.OptionalTexts, func(f *Feedback) string { return f.SESMessageID }),
	},
}

// readAll reads the emails of the notifications that are new.
func (s *Store) readAll(ctx context.Context, tx *sqlx.Tx, all []Feedback, results []recorded) (map[uuid.UUID]subject, error) {
	var fresh []Feedback
	for i, f := range all {
		if results[i].fresh() {
			fresh = append(fresh, f)
		}
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	var rows []subject
	err := s.readFeedback.SelectIn(ctx, tx, &rows, readParameters.Arguments(scalarsOf(fresh, emailOf), fresh)...)
	if err != nil {
		return nil, fmt.Errorf("read emails: %w", pg.Translate(err))
	}
	found := make(map[uuid.UUID]subject, len(rows))
	for _, row := range rows {
		found[row.OutboxID] = row
	}
	return found, nil
}

// onlyRecipient returns the address of an email that was sent to one recipient, and "" for one that had others, which an erasure
// may have removed, or whose outbox row is purged.
func (s *subject) onlyRecipient() string {
	if !s.InOutbox || s.Erased || s.Copied {
		return ""
	}
	return s.Recipients[0]
}

// addressesToSuppress returns the addresses to suppress, in the form of suppression.Key: the recipient of an email that had only
// one, because a mailbox that forwards emails bounces with the address of another one, and otherwise those of the notification
// to which the email was sent.
func (s *subject) addressesToSuppress(f Feedback) []string {
	if f.Suppress == "" {
		return nil
	}
	if only := s.onlyRecipient(); only != "" {
		return []string{suppression.Key(only)}
	}
	var known []string
	for _, recipient := range s.Recipients {
		known = append(known, suppression.Key(recipient))
	}
	named := make([]string, 0, len(f.Addresses))
	for _, address := range f.Addresses {
		if key := suppression.Key(address); slices.Contains(known, key) {
			named = append(named, key)
		}
	}
	slices.Sort(named)
	return slices.Compact(named)
}

// hasUnknownAddress reports whether the notification names an address that the email's rows no longer
// contain. The person may have been erased, or the email forwarded.
func (s *subject) hasUnknownAddress(f Feedback) bool {
	return slices.ContainsFunc(f.Addresses, func(address string) bool {
		return !slices.ContainsFunc(s.Recipients, func(known string) bool { return suppression.Key(known) == suppression.Key(address) })
	})
}

// newEvents returns the events to add to the timeline: SENT if the email is not SENT yet, or
// DUPLICATE_CONFIRMED if the provider has accepted it again, and the reported event.
func (s *subject) newEvents(f Feedback, suppressed []string, now time.Time) []email.Event {
	events := []email.Event{} // nil would be null in JSON
	origin := map[string]any{"sesMessageId": f.SESMessageID, "attemptId": f.AttemptID, "feedback": f.Kind}
	switch {
	case s.Status != email.Sent:
		events = append(events, email.Event{Type: email.EventSent, At: now, Metadata: origin})
	case f.SESMessageID != "" && s.SESMessageID != "" && s.SESMessageID != f.SESMessageID && !s.DuplicateRecorded:
		events = append(events, email.Event{Type: email.EventDuplicateConfirmed, At: now, Metadata: origin})
	}
	repeatable := f.Event == email.EventOpened || f.Event == email.EventClicked || f.Event == email.EventDeliveryDelayed
	if f.Event == "" || s.EventRecorded || s.Reported >= maxEvents || repeatable && s.Reported >= repeatableLimit {
		return events
	}
	metadata := maps.Clone(f.Metadata)
	if s.Erased || s.hasUnknownAddress(f) {
		metadata = maps.Clone(f.Masked)
		if only := s.onlyRecipient(); only != "" {
			metadata["recipient"] = only
		}
	}
	if len(suppressed) > 0 {
		metadata["suppressed"] = suppressed
	}
	return append(events, email.Event{Type: f.Event, At: now, Metadata: metadata})
}

// confirmation makes the email SENT, as the response to the attempt would have done.
func confirmation(f Feedback, events []email.Event) outbox.Transition {
	return outbox.Transition{
		ID: f.OutboxID, Guard: outbox.GuardFeedback, Token: f.AttemptID, Status: email.Sent, Events: events, SESMessageID: f.SESMessageID,
	}
}

// addition are the events that a notification adds to a timeline.
type addition struct {
	Feedback
	events    []byte // as JSON
	duplicate bool
}

// appendParameters are the parameters of append_feedback.sql.
var appendParameters = pg.Parameters[groupScalars, addition]{
	Scalars: scalars,
	Columns: []pg.Column[addition]{
		pg.Each("outbox_id", "uuid", pg.UUIDs, func(a *addition) uuid.UUID { return a.OutboxID }),
		pg.Each("events", "jsonb", pg.JSONBs, func(a *addition) []byte { return a.events }),
		pg.Each("ses_message_id", "text", pg.OptionalTexts, func(a *addition) string { return a.SESMessageID }),
		pg.Each("duplicate", "bool", pg.Bools, func(a *addition) bool { return a.duplicate }),
	},
}

func (s *Store) appendAll(ctx context.Context, tx *sqlx.Tx, all []addition) error {
	if len(all) == 0 {
		return nil
	}
	scalars := scalarsOf(all, func(a *addition) uuid.UUID { return a.OutboxID })
	var none []struct{}
	if err := s.appendFeedback.SelectIn(ctx, tx, &none, appendParameters.Arguments(scalars, all)...); err != nil {
		return fmt.Errorf("append to timelines: %w", pg.Translate(err))
	}
	return nil
}
