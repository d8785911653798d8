package retention

import (
	"context"
	"fmt"
	"time"

	"email-gateway/shared/store/internal/pg"
)

// maxClockAhead is how far Postgres's clock may be ahead of this machine's. Ages are a day or more.
const maxClockAhead = time.Hour

// clockSQL reads no table.
const clockSQL = `SELECT clock_timestamp()`

// CheckClock returns an error if Postgres's clock, by which data expires, is ahead of this machine's. A deletion cannot
// be undone: after a failover to a server whose clock is a year ahead, everything would be deleted at once.
func (s *Store) CheckClock(ctx context.Context, host func() time.Time) error {
	var now time.Time
	if err := s.db.GetContext(ctx, &now, clockSQL); err != nil {
		return fmt.Errorf("read Postgres's clock: %w", pg.Translate(err))
	}
	if ahead := now.Sub(host().Round(0)); ahead > maxClockAhead {
		return fmt.Errorf("the clock of Postgres is %s ahead of this machine's: nothing is deleted until they agree", ahead.Round(time.Second))
	}
	return nil
}
