package store

import (
	"context"
	"fmt"
)

// WakeChannel is the Postgres channel on which the api tells dispatchers that
// there is something to do.
const WakeChannel = "email_outbox"

const wakeSQL = `SELECT pg_notify($1, '')`

// Wake tells every listening dispatcher to look. It must not run inside the
// transaction that inserts: NOTIFY makes commits queue up behind one lock.
func (s *Store) Wake(ctx context.Context) error {
	if _, err := s.exec(ctx, wakeSQL, WakeChannel); err != nil {
		return fmt.Errorf("wake dispatchers: %w", err)
	}
	return nil
}
