package bench

import (
	"context"
	"fmt"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/results"
)

func feed() Section {
	return Section{Name: "feed", What: "emails sent with the events feed and what reads it (usage, reputation guard), compared with sending without the feed", Run: runFeed}
}

// runFeed compares sending with and without the trigger that adds the events of each statement to event_feed. Without
// its rows there are no positions to give and nothing to count for usage and reputation. Each measurement has a new database.
func runFeed(ctx context.Context, r *environment.Environment, t *results.Table) error {
	n := environment.Scale(r, 60_000, 4_000)
	return t.Compare(ctx,
		results.Subject{Name: fmt.Sprintf("%d emails", n), Unit: "emails/s", Measure: func(ctx context.Context) (float64, error) {
			return seededTurn(ctx, r, t, "with the feed", n, nil)
		}},
		results.Reference{Name: "without the feed", Budget: 0.95, Measure: func(ctx context.Context) (float64, error) {
			return seededTurn(ctx, r, t, "without the feed", n, func(s *environment.System) (end func() error, err error) { return withoutFeed(ctx, s) })
		}})
}

// withoutFeed disables the trigger, and returns a function that enables it.
func withoutFeed(ctx context.Context, s *environment.System) (end func() error, err error) {
	set := func(what string) error {
		if _, err := s.Database.ExecContext(ctx, "ALTER TABLE email_events "+what+" TRIGGER email_events_feed"); err != nil {
			return fmt.Errorf("%s the trigger of the feed: %w", what, err)
		}
		return nil
	}
	return func() error { return set("ENABLE") }, set("DISABLE")
}
