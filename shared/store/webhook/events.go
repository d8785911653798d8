package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/event"
)

// Cursor is an event.Cursor in stored form: its Place.
type Cursor struct {
	Position int64 `db:"feed_position"`
	Number   int64 `db:"feed_number"`
}

func cursorOf(c event.Cursor) Cursor {
	position, number := c.Place()
	return Cursor{Position: position, Number: number}
}

// Behind reports whether c is before other in the feed.
func (c Cursor) Behind(other Cursor) bool {
	return c.Position > other.Position || c.Position == other.Position && c.Number > other.Number
}

// Event is an event of a company's feed.
type Event struct {
	Cursor
	ID   string // value of the header webhook-id, and of id in GET /v1/events
	Type string // such as email.bounced
	// EmailID is the email, or the company for events of the company. Events with the same EmailID are delivered
	// in order.
	EmailID uuid.UUID
	At      time.Time
	Data    json.RawMessage
}

// EventPage is a page of events.
type EventPage struct {
	Events []Event
	// Next is the cursor after the page, including events that the filter left out.
	Next Cursor
	// Skipped means that events between the cursor and the page are no longer kept.
	Skipped bool
}

// Read reads at most limit of the company's events after a cursor, of the types that filter selects. If the cursor is
// older than the oldest stored event, it reads from that event.
func (s *SenderStore) Read(ctx context.Context, company uuid.UUID, after Cursor, filter []string, limit int) (EventPage, error) {
	selected := filterOf(filter)
	from := event.At(after.Position, after.Number)
	page, err := s.feed.Read(ctx, company, from, selected, limit)
	skipped := errors.Is(err, event.ErrExpired)
	if skipped {
		page, err = s.feed.Read(ctx, company, page.Oldest, selected, limit)
	}
	if err != nil {
		return EventPage{}, fmt.Errorf("read events of a webhook endpoint: %w", err)
	}
	next := EventPage{Next: cursorOf(page.Next), Skipped: skipped}
	for _, e := range page.Events {
		shown, err := eventOf(company, e)
		if err != nil {
			return EventPage{}, err
		}
		next.Events = append(next.Events, shown)
	}
	return next, nil
}

// FindEvents reads events of the company by id. It leaves out events that are no longer stored.
func (s *SenderStore) FindEvents(ctx context.Context, company uuid.UUID, ids []string) (map[string]Event, error) {
	all, err := s.feed.Find(ctx, company, ids)
	if err != nil {
		return nil, err
	}
	found := make(map[string]Event, len(all))
	for _, e := range all {
		shown, err := eventOf(company, e)
		if err != nil {
			return nil, err
		}
		found[shown.ID] = shown
	}
	return found, nil
}

// catchUpSQL moves the cursors of endpoints without a new event to the newest position, so that the cursor of a company
// that sends nothing does not become older than the stored events. It reads the company's newest event of each endpoint
// by event_feed_position, as behindSQL does, and locks the endpoints that it changes. It skips endpoints that another
// transaction has locked, because it would hold the others while it waits.
const catchUpSQL = `
WITH idle AS MATERIALIZED (
    SELECT e.id, p.newest FROM webhook_endpoints e, event_positions p
    WHERE e.feed_position < p.newest AND ` + freeSQL + `
      AND coalesce((SELECT f.position > e.feed_position OR e.feed_number < $1::bigint FROM event_feed f
        WHERE f.company_id = e.company_id AND f.position >= e.feed_position ORDER BY f.position DESC LIMIT 1), false) = false
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE webhook_endpoints e SET feed_position = i.newest, feed_number = $1 FROM idle i WHERE e.id = i.id AND e.feed_position < i.newest`

// CatchUp moves the cursors of endpoints that have no new event.
func (s *SenderStore) CatchUp(ctx context.Context) error {
	if _, err := s.db.Exec(ctx, catchUpSQL, cursorOf(event.Behind(0)).Number); err != nil {
		return fmt.Errorf("move cursors of webhook endpoints: %w", err)
	}
	return nil
}

// eventData is the field data of a delivery: what GET /v1/events shows of the event. An event of the company has only
// its metadata.
type eventData struct {
	*emailData
	Metadata json.RawMessage `json:"metadata"`
}

type emailData struct {
	OutboxID   uuid.UUID  `json:"outboxId"`
	Seq        int        `json:"seq"`
	RequestID  string     `json:"requestId"`
	To         string     `json:"to"`
	ExternalID *string    `json:"externalId,omitempty"`
	Tags       []string   `json:"tags"`
	Aggregate  *aggregate `json:"aggregate,omitempty"`
	MailingID  *uuid.UUID `json:"mailingId,omitempty"`
}

type aggregate struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	EventType string `json:"eventType"`
}

func eventOf(company uuid.UUID, e event.Event) (Event, error) {
	key, shown := company, eventData{Metadata: e.Metadata}
	if len(shown.Metadata) == 0 || string(shown.Metadata) == "null" {
		shown.Metadata = json.RawMessage("{}")
	}
	if !e.OfCompany {
		key, shown.emailData = e.EmailID, emailDataOf(e)
	}
	data, err := json.Marshal(shown)
	if err != nil {
		return Event{}, fmt.Errorf("encode event: %w", err)
	}
	return Event{Cursor: cursorOf(e.Cursor()), ID: e.ID(), Type: publicType(e.Type, e.OfCompany), EmailID: key, At: e.CreatedAt, Data: data}, nil
}

func emailDataOf(e event.Event) *emailData {
	shown := emailData{
		OutboxID: e.EmailID, Seq: e.Seq, RequestID: e.RequestID, To: e.Recipient, ExternalID: e.ExternalID,
		Tags: append([]string{}, e.Tags...), MailingID: e.MailingID,
	}
	if e.AggregateType != nil {
		shown.Aggregate = &aggregate{Type: *e.AggregateType, ID: orZero(e.AggregateID), EventType: orZero(e.EventType)}
	}
	return &shown
}

// filterOf returns the filter of an endpoint's types, which are public names and prefixes; none selects all events. Types
// that this release does not know are selected too: a newer release may have added them to the filter, and writes their
// events.
func filterOf(types []string) *event.Filter {
	if len(types) == 0 {
		return nil
	}
	f := event.NewFilter()
	for _, t := range types {
		addTo(f.AddOfEmails, emailPrefix, t)
		addTo(f.AddOfCompany, companyPrefix, t)
	}
	return f
}

// addTo adds the events of a namespace that a type or prefix selects.
func addTo(add func(string), namespace, t string) {
	prefix, isPrefix := strings.CutSuffix(t, "*")
	if name, found := strings.CutPrefix(t, namespace); found {
		add(strings.ToUpper(name))
	} else if isPrefix && strings.HasPrefix(namespace, prefix) {
		add("*")
	}
}
