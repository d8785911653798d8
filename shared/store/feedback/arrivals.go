package feedback

import (
	"context"
	"time"

	"email-gateway/shared/store/internal/pg"
)

// Arrivals says whether events of SES still arrive.
type Arrivals struct {
	Newest *time.Time `db:"newest"` // when the newest event was received; nil = none of those that are kept
	// OfEach means that SES reports every email, and not only those that bounce or draw a complaint.
	OfEach bool `db:"of_each"`
	// Sent is how many emails were sent after the newest event, and at least ten minutes ago, among the newest 20,000
	// rows of the feed of that age.
	Sent int `db:"sent"`
	// OnAccountList is how many of the newest 20,000 events, of the last day, are about emails that SES did not send, because the
	// address is on the suppression list of its account.
	OnAccountList int `db:"on_account_list"`
}

// arrivalsSQL reads at most 20,000 rows along ses_events_age, and along event_feed_pkey the rows of the last ten minutes
// and 20,000 before them: about a second where 500 emails are sent per second. It locks nothing.
const arrivalsSQL = `
SELECT e.newest, e.of_each,
       (SELECT coalesce(sum(f.sent), 0)
        FROM (SELECT sent, created_at FROM event_feed WHERE created_at < now() - interval '10 min' ORDER BY id DESC LIMIT 20000) f
        WHERE f.created_at > coalesce(e.newest, '-infinity')) AS sent,
       (SELECT count(*)
        FROM (SELECT kind, payload FROM ses_events WHERE received_at > now() - interval '1 day' ORDER BY received_at DESC LIMIT 20000) f
        WHERE f.kind IN ('Bounce', 'Complaint')
          AND 'OnAccountSuppressionList' IN (f.payload ->> 'bounceSubType', f.payload ->> 'complaintSubType')) AS on_account_list
FROM (SELECT max(received_at) AS newest, coalesce(bool_or(kind IN ('Send', 'Delivery')), false) AS of_each
      FROM (SELECT received_at, kind FROM ses_events ORDER BY received_at DESC LIMIT 20) newest) e`

// EventArrivals compares the newest event of SES with the emails sent since.
func (s *Store) EventArrivals(ctx context.Context) (Arrivals, error) {
	var found Arrivals
	err := s.db.GetContext(ctx, &found, arrivalsSQL)
	return found, pg.Wrap("look for events of SES", pg.Translate(err))
}
