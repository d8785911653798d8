package lane

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// Channel is the Postgres channel on which dispatchers learn of rows to look for. The
// payload is the ids of their lanes with commas in between; an empty one means any lane.
const Channel = "email_outbox"

const wakeSQL = `SELECT pg_notify($1, $2)`

// Wake makes every listening dispatcher look at all lanes. It must not run inside the
// transaction that inserts: NOTIFY makes commits queue up behind one lock.
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

// maxNamed is how many lanes a wake-up names at most: each id has up to 19 digits and a comma,
// and Postgres limits a payload to less than 8,000 bytes.
const maxNamed = 390

// wakeLanesSQL finds lanes by dispatch_lanes_company_id_queue_mailing_id_key and locks nothing.
// No lane, or too many of them, make an empty payload. $6 is the length of the lists.
const wakeLanesSQL = `
SELECT pg_notify($1, coalesce((
    SELECT CASE WHEN count(*) <= $4 THEN string_agg(named.id::text, ',') END FROM (
        SELECT l.id FROM (
            SELECT * FROM unnest($2::uuid[], $3::text[], $5::uuid[]) AS wanted(company_id, queue, mailing_id) LIMIT $6
        ) wanted
        JOIN dispatch_lanes l ON l.company_id = wanted.company_id
            AND CASE WHEN wanted.queue = '' THEN true
                     ELSE l.queue = wanted.queue AND coalesce(l.mailing_id, '00000000-0000-0000-0000-000000000000') = wanted.mailing_id END
        LIMIT $4 + 1) named), ''))`

// WakeLanes is Wake for some lanes, and without any Wake itself.
func (s *Store) WakeLanes(ctx context.Context, lanes []Lanes) error {
	if len(lanes) == 0 || len(lanes) > maxNamed {
		return s.Wake(ctx)
	}
	companies, queues, mailings := make([]uuid.UUID, len(lanes)), make([]string, len(lanes)), make([]uuid.UUID, len(lanes))
	for i, l := range lanes {
		companies[i], queues[i], mailings[i] = l.Company, l.Queue, l.Mailing
	}
	err := pg.Write(func(args []any) error {
		var notified []string // pg_notify returns nothing, in a row
		return s.wakeLanes.Select(ctx, &notified, args...)
	}, Channel, pg.UUIDArray(companies), pg.TextArray(queues), maxNamed, pg.UUIDArray(mailings), len(lanes))
	if err != nil {
		return fmt.Errorf("wake dispatchers: %w", err)
	}
	return nil
}

// namedLanes reads a wake-up's payload; false means any lane.
func namedLanes(payload string) ([]int64, bool) {
	var lanes []int64
	for text := range strings.SplitSeq(payload, ",") {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, false
		}
		lanes = append(lanes, id)
	}
	return lanes, true
}
