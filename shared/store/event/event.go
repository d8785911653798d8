// Package event reads the feed of a company's events: every event of its emails, and those of the company itself
// (company_events), in an order that never changes. GET /v1/events and webhooks read it.
//
// Every statement that changes an email inserts events. For each statement and company a trigger adds a row to
// event_feed (schema/migrations/00034_event_feed.sql). The row has no position until AssignPositions gives it one,
// after its transaction has committed. So a row that commits late gets a late position, nothing ever appears before a
// position that a reader has seen, and no reader waits for an open transaction.
//
// Two statements about the same email lock its row, so the later one begins after the commit of the earlier one and has
// the higher id. Positions are assigned by id among all visible rows, so they follow each email's timeline.
//
// A position is never used twice, also not after a restore of the database to an earlier time: see newHistory. The seqs of a
// timeline are: events that were read and then lost had the seqs of later events. So an id has the history of its position.
package event

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
)

// Store has the statements of the feed.
type Store struct{ db *pg.DB }

// New returns a Store on db, the DB of store.Open.
func New(db *pg.DB) *Store { return &Store{db: db} }

// ErrExpired: the cursor is older than the stored events, or none that this database has returned.
var ErrExpired = errors.New("the cursor is older than the oldest stored event, or no cursor of this database")

// ErrNewHistory: the database was restored, or a standby was promoted, and no dispatcher has assigned positions since. The cursor
// may be of a position that was lost. It is valid when a dispatcher has noticed the new history.
var ErrNewHistory = errors.New("the database was restored, or a standby promoted, and no dispatcher has assigned positions since")

// Event is one event of the feed.
type Event struct {
	Position  int64           `db:"position"` // of the row of event_feed
	History   int64           // in which the position was assigned: of the position, or of the id of Find
	EmailID   uuid.UUID       `db:"email_id"` // the event's own id if OfCompany
	Seq       int             `db:"seq"`
	OfCompany bool            `db:"of_company"` // not about an email; its type is one of CompanyTypes
	Type      email.EventType `db:"type"`
	Metadata  json.RawMessage `db:"metadata"`
	CreatedAt time.Time       `db:"created_at"`

	// Of the email's log, empty if OfCompany; the recipient of an erased person is recipient.ErasedAddress.
	Recipient     string         `db:"recipient"`
	RequestID     string         `db:"request_id"`
	ExternalID    *string        `db:"external_id"`
	Tags          pq.StringArray `db:"tags"`
	MailingID     *uuid.UUID     `db:"mailing_id"` // nil after the outbox row is deleted
	AggregateType *string        `db:"aggregate_type"`
	AggregateID   *string        `db:"aggregate_id"`
	EventType     *string        `db:"event_type"`

	email int // the index of the email in its row of event_feed
}

// ID returns the id of the event, which never changes and is the same for every reader: <email>.<seq>, and after a restore or
// the promotion of a standby <email>.<seq>.<history>.
func (e Event) ID() string {
	id := e.EmailID.String() + "." + strconv.Itoa(e.Seq)
	if e.History > 0 {
		id += "." + strconv.FormatInt(e.History, 10)
	}
	return id
}

// Cursor returns the cursor after the event.
func (e Event) Cursor() Cursor { return Cursor{Position: e.Position, email: e.email, seq: e.Seq} }

// Cursor is a place in the feed. The zero value is before its first event.
type Cursor struct {
	// Position is a row of event_feed. The cursor is after event seq of the email with the index email in that row, or
	// after the whole row if email is wholeRow.
	Position   int64
	email, seq int
}

// wholeRow as the email of a cursor means after all events of the row.
const wholeRow = 1 << 30

// Behind returns the cursor after all rows up to position.
func Behind(position int64) Cursor { return Cursor{Position: position, email: wholeRow} }

// Place returns the cursor as two numbers that sort like cursors, for tables that store it.
func (c Cursor) Place() (position, number int64) {
	return c.Position, int64(c.email)<<32 | int64(c.seq)
}

// At is the reverse of Place. A number of 1<<62 means after the whole row.
func At(position, number int64) Cursor {
	return Cursor{Position: position, email: int(number >> 32), seq: int(number & math.MaxUint32)}
}

// parseID parses an id that Event.ID returned.
func parseID(id string) (e feedEmail, err error) {
	parts := strings.Split(id, ".")
	if len(parts) != 2 && len(parts) != 3 {
		return e, fmt.Errorf("not the id of an event: %q", id)
	}
	var errSeq, errHistory error
	e.id, err = uuid.Parse(parts[0])
	e.first, errSeq = strconv.Atoi(parts[1])
	e.last = e.first
	if len(parts) == 3 {
		e.history, errHistory = strconv.ParseInt(parts[2], 10, 64)
	}
	if errors.Join(err, errSeq, errHistory) != nil {
		return e, fmt.Errorf("not the id of an event: %q", id)
	}
	return e, nil
}

// String returns the cursor in the form that clients see.
func (c Cursor) String() string {
	text := strconv.FormatInt(c.Position, 10)
	if c.email != wholeRow && c.Position > 0 {
		text += fmt.Sprintf(".%d.%d", c.email, c.seq)
	}
	return base64.RawURLEncoding.EncodeToString([]byte("e" + text))
}

// ParseCursor parses a cursor that String returned.
func ParseCursor(text string) (Cursor, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	numbers := strings.Split(strings.TrimPrefix(string(raw), "e"), ".")
	if err != nil || !strings.HasPrefix(string(raw), "e") || len(numbers) != 1 && len(numbers) != 3 {
		return Cursor{}, errors.New("not a cursor of events")
	}
	position, err := strconv.ParseInt(numbers[0], 10, 64)
	if err != nil || position < 0 {
		return Cursor{}, errors.New("not a cursor of events")
	}
	if len(numbers) == 1 {
		return Behind(position), nil
	}
	index, errIndex := strconv.ParseUint(numbers[1], 10, 16)
	seq, errSeq := strconv.ParseUint(numbers[2], 10, 31)
	if err := errors.Join(errIndex, errSeq); err != nil {
		return Cursor{}, errors.New("not a cursor of events")
	}
	return Cursor{Position: position, email: int(index), seq: int(seq)}, nil
}

// covers reports whether the event is before the cursor.
func (c Cursor) covers(e Event) bool {
	switch {
	case e.Position != c.Position:
		return e.Position < c.Position
	case e.email != c.email:
		return e.email < c.email
	}
	return e.Seq <= c.seq
}
