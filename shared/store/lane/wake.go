package lane

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// Channel is the Postgres channel of the dispatchers' wake-ups. The payload is a list of lane ids, separated by commas.
// An id may be followed by @ and Named.From as Unix time in microseconds. Any other payload means all lanes.
const Channel = "email_outbox"

const wakeSQL = `SELECT pg_notify($1, $2)`

// Wake makes every listening dispatcher check all lanes. It must not run in the transaction that inserts the rows:
// NOTIFY makes commits wait for one lock.
func (s *Store) Wake(ctx context.Context) error {
	if _, err := s.db.Exec(ctx, wakeSQL, Channel, ""); err != nil {
		return fmt.Errorf("wake dispatchers: %w", err)
	}
	return nil
}

// Lanes names lanes of a company for a wake-up.
type Lanes struct {
	Company uuid.UUID
	Queue   string    // "" = all queues, those of mailings included
	Mailing uuid.UUID // uuid.Nil = the queue's lane without a mailing
}

// maxNamed is the maximum number of lanes in a wake-up without times: each id has up to 19 digits and a comma, and
// Postgres limits a payload to less than 8,000 bytes.
const maxNamed = 390

// wakeLanesParameters are the parameters of wake_lanes.sql: how many lanes, and their names.
var wakeLanesParameters = pg.Parameters[int, Lanes]{
	Scalars: []pg.Scalar[int]{
		pg.One("channel", "text", func(int) any { return Channel }),
		pg.One("most", "integer", func(int) any { return maxNamed }),
		pg.One("count", "bigint", func(count int) any { return count }),
	},
	Columns: []pg.Column[Lanes]{
		pg.Each("company_id", "uuid", pg.UUIDs, func(l *Lanes) uuid.UUID { return l.Company }),
		pg.Each("queue", "text", pg.Texts, func(l *Lanes) string { return l.Queue }),
		pg.Each("mailing_id", "uuid", pg.UUIDs, func(l *Lanes) uuid.UUID { return l.Mailing }),
	},
}

// WakeLanes is Wake for some lanes. Without lanes, or with more than maxNamed, it wakes all.
func (s *Store) WakeLanes(ctx context.Context, lanes []Lanes) error {
	if len(lanes) == 0 || len(lanes) > maxNamed {
		return s.Wake(ctx)
	}
	err := pg.Write(func(args []any) error {
		var notified []string // pg_notify returns one empty row
		return s.wakeLanes.Select(ctx, &notified, args...)
	}, wakeLanesParameters.Arguments(len(lanes), lanes)...)
	if err != nil {
		return fmt.Errorf("wake dispatchers: %w", err)
	}
	return nil
}

// Named is a lane that a wake-up names.
type Named struct {
	ID int64
	// From is the earliest next_at of the rows that were returned to the lane with their previous next_at; zero = none
	// were. A dispatcher reads the lane from there, where it would otherwise begin at a later row.
	From time.Time
}

// maxReturned is the maximum number of lanes with times in a payload: each takes up to 38 characters.
const maxReturned = 200

// wakeNamedSQL sends a wake-up for each payload.
const wakeNamedSQL = `SELECT pg_notify($1, payload) FROM unnest($2::text[]) payload`

// WakeNamed makes the dispatchers read these lanes.
func (s *Store) WakeNamed(ctx context.Context, lanes []Named) error {
	if len(lanes) == 0 {
		return nil
	}
	var payloads []string
	for chunk := range slices.Chunk(lanes, maxReturned) {
		names := make([]string, len(chunk))
		for i, l := range chunk {
			names[i] = l.String()
		}
		payloads = append(payloads, strings.Join(names, ","))
	}
	if _, err := s.db.Exec(ctx, wakeNamedSQL, Channel, pg.TextArray(payloads)); err != nil {
		return fmt.Errorf("wake dispatchers: %w", err)
	}
	return nil
}

// String returns the lane as a payload names it.
func (n Named) String() string {
	if n.From.IsZero() {
		return strconv.FormatInt(n.ID, 10)
	}
	return fmt.Sprintf("%d@%d", n.ID, n.From.UnixMicro())
}

// namedLanes parses a payload; false means all lanes.
func namedLanes(payload string) ([]Named, bool) {
	var lanes []Named
	for text := range strings.SplitSeq(payload, ",") {
		var l Named
		id, from, timed := strings.Cut(text, "@")
		var err error
		if l.ID, err = strconv.ParseInt(id, 10, 64); err != nil {
			return nil, false
		}
		if timed {
			micros, err := strconv.ParseInt(from, 10, 64)
			if err != nil {
				return nil, false
			}
			l.From = time.UnixMicro(micros)
		}
		lanes = append(lanes, l)
	}
	return lanes, true
}
