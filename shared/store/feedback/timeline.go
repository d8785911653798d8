package feedback

import (
	"context"
	"encoding/json"
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
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/suppression"
)

// subject is the email that a notification is about.
type subject struct {
	InOutbox     bool           `db:"in_outbox"`
	Status       email.Status   `db:"status"`
	SESMessageID string         `db:"ses_message_id"`
	Recipients   pq.StringArray `db:"recipients"`
	Events       int            `db:"events"`
	// OutcomeUnknown: the outcome of an attempt was unknown before this notification.
	OutcomeUnknown bool `db:"outcome_unknown"`
	// Attempted: the timeline contains the attempt.
	Attempted bool `db:"attempted"`
	// Told: the timeline contains the event already, from another notification.
	Told bool `db:"told"`
	// Doubled: the timeline already records the message id as another acceptance.
	Doubled bool `db:"doubled"`
	// Erased: the email's addressees are no longer recorded.
	Erased bool `db:"erased"`

	RequestID string        `db:"request_id"`
	MailingID uuid.NullUUID `db:"mailing_id"`
	Attempt   int           `db:"attempt"`
}

// readFeedbackSQL reads the outbox row, its lane and its log by primary key, and the timeline, whose
// length is bounded, by its first column. takeFeedbackSQL has locked the rows that could change.
const readFeedbackSQL = `
SELECT o.id IS NOT NULL AS in_outbox, coalesce(o.status, l.status, '') AS status, coalesce(l.ses_message_id, '') AS ses_message_id,
       CASE WHEN o.id IS NULL THEN ARRAY[l.recipient]
            ELSE (o.payload ->> 'to') || ARRAY(SELECT jsonb_array_elements_text(coalesce(o.payload -> 'cc', '[]') || coalesce(o.payload -> 'bcc', '[]')))
       END AS recipients,
       l.recipient = '` + recipient.ErasedAddress + `' AS erased, l.event_seq AS events, coalesce(o.outcome_unknown, false) AS outcome_unknown,
       l.request_id, coalesce(o.attempts - o.throttles, l.attempts - l.throttles) AS attempt, lane.mailing_id,
       coalesce(e.attempted, false) AS attempted, coalesce(e.told, false) AS told, coalesce(e.doubled, false) AS doubled
FROM (SELECT $1::uuid AS id) t
JOIN email_logs l ON l.outbox_id = t.id AND l.company_id = $2
LEFT JOIN email_outbox o ON o.id = t.id AND o.target = 'email:send'
LEFT JOIN dispatch_lanes lane ON lane.id = o.lane_id
CROSS JOIN LATERAL (
    SELECT bool_or(type = 'SENT_ATTEMPT' AND metadata ->> 'attemptId' = $3::text) AS attempted,
           bool_or(type = $4 AND metadata @> $5::jsonb) AS told,
           bool_or(type = 'DUPLICATE_CONFIRMED' AND metadata ->> 'sesMessageId' = $6) AS doubled
    FROM email_events WHERE email_log_id = t.id
) e`

func readFeedback(ctx context.Context, tx *sqlx.Tx, f Feedback) (subject, error) {
	var found []subject
	metadata, err := json.Marshal(f.Metadata)
	if err != nil {
		return subject{}, fmt.Errorf("encode metadata: %w", err)
	}
	err = tx.SelectContext(ctx, &found, readFeedbackSQL, f.OutboxID, f.CompanyID, f.AttemptID.String(), f.Event,
		string(pg.WithoutEscapedNUL(metadata)), pg.WithoutNUL(f.SESMessageID))
	if err != nil {
		return subject{}, fmt.Errorf("read the email: %w", pg.Translate(err))
	}
	if len(found) == 0 {
		return subject{}, nil
	}
	return found[0], nil
}

// among returns the addresses to suppress: those of the notification to which the email was sent, in
// the form of suppression.Key.
func (s *subject) among(f Feedback) []string {
	if f.Suppress == "" {
		return nil
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

// tellsOfOthers reports whether the notification names an address that the email's rows no longer
// contain. The person may have been erased.
func (s *subject) tellsOfOthers(f Feedback) bool {
	return slices.ContainsFunc(f.Addresses, func(told string) bool {
		return !slices.ContainsFunc(s.Recipients, func(known string) bool { return suppression.Key(known) == suppression.Key(told) })
	})
}

// news returns the events to add to the timeline: SENT if the email is not SENT yet, or
// DUPLICATE_CONFIRMED if the provider has accepted it again, and the reported event.
func (s *subject) news(f Feedback, suppressed []string, now time.Time) []email.Event {
	var events []email.Event
	origin := map[string]any{"sesMessageId": f.SESMessageID, "attemptId": f.AttemptID, "feedback": f.Kind}
	switch {
	case s.Status != email.Sent:
		events = append(events, email.Event{Type: email.EventSent, At: now, Metadata: origin})
	case f.SESMessageID != "" && s.SESMessageID != "" && s.SESMessageID != f.SESMessageID && !s.Doubled:
		events = append(events, email.Event{Type: email.EventDuplicateConfirmed, At: now, Metadata: origin})
	}
	restless := f.Event == email.EventOpened || f.Event == email.EventClicked || f.Event == email.EventDeliveryDelayed
	if f.Event == "" || s.Told || s.Events >= maxEvents || restless && s.Events >= restlessEvents {
		return events
	}
	metadata := maps.Clone(f.Metadata)
	if s.Erased || s.tellsOfOthers(f) {
		metadata = maps.Clone(f.Masked)
	}
	if len(suppressed) > 0 {
		metadata["suppressed"] = suppressed
	}
	return append(events, email.Event{Type: f.Event, At: now, Metadata: metadata})
}

// confirm makes the email SENT, as the response to the attempt would have done.
func confirm(ctx context.Context, tx *sqlx.Tx, f Feedback, events []email.Event) error {
	// The transaction holds the locks, so the transition always applies.
	_, err := outbox.AdvanceIn(ctx, tx, outbox.Transition{
		ID: f.OutboxID, Guard: outbox.GuardFeedback, Token: f.AttemptID, Status: email.Sent, Events: events, SESMessageID: f.SESMessageID,
	})
	if err != nil {
		return fmt.Errorf("confirm the email: %w", err)
	}
	return nil
}

// appendFeedbackSQL adds events after the newest event of an email that is SENT, or of one
// whose outbox row is purged and whose log is SENT. It finds the rows by
// primary key; takeFeedbackSQL has locked them.
const appendFeedbackSQL = `
WITH log AS MATERIALIZED (
    SELECT outbox_id, event_seq, last_event FROM email_logs WHERE outbox_id = $1
), moved AS (
    UPDATE email_logs l SET
        status = 'SENT', sent_at = coalesce(l.sent_at, now()), failed_at = NULL, error_code = NULL, error_reason = NULL,
        ses_message_id = coalesce(l.ses_message_id, nullif($3, '')),
        possible_duplicate = l.possible_duplicate OR $4,
        event_seq = log.event_seq + jsonb_array_length($2::jsonb),
        last_event = coalesce($2::jsonb #>> '{-1,type}', log.last_event)
    FROM log WHERE l.outbox_id = log.outbox_id AND l.outbox_id = $1
), known AS (
    UPDATE email_outbox SET outcome_unknown = false, possible_duplicate = possible_duplicate OR $4
    WHERE id = $1 AND (outcome_unknown OR $4 AND NOT possible_duplicate)
)
INSERT INTO email_events (email_log_id, seq, previous, type, metadata, created_at)
SELECT log.outbox_id, log.event_seq + e.n,
       CASE WHEN e.n = 1 THEN log.last_event ELSE $2::jsonb -> (e.n - 2)::int ->> 'type' END,
       e.event ->> 'type', coalesce(nullif(e.event -> 'metadata', 'null'), '{}'), (e.event ->> 'at')::timestamptz
FROM log CROSS JOIN LATERAL jsonb_array_elements($2::jsonb) WITH ORDINALITY AS e(event, n)`

func appendFeedback(ctx context.Context, tx *sqlx.Tx, f Feedback, events []email.Event, duplicate bool) error {
	if events == nil {
		events = []email.Event{}
	}
	encoded, err := outbox.EncodeEvents(events)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, appendFeedbackSQL, f.OutboxID, string(encoded), pg.WithoutNUL(f.SESMessageID), duplicate); err != nil {
		return fmt.Errorf("append to the timeline: %w", pg.Translate(err))
	}
	return nil
}
