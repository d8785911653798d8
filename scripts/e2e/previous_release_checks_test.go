package e2e_test

import (
	"fmt"
	"time"

	"github.com/lib/pq"

	"email-gateway/shared/store/storetest"
)

// awaitProgress waits until n emails that were accepted after now are sent.
func awaitProgress(s *system, n int) {
	s.t.Helper()
	var now time.Time
	if err := s.db.SQL.QueryRowContext(s.t.Context(), `SELECT now()`).Scan(&now); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, func() error {
		if sent := storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM email_outbox WHERE status = 'SENT' AND created_at > $1`, now); sent < n {
			return fmt.Errorf("%d of %d new emails are sent: %s", sent, n, s.statusCounts())
		}
		return nil
	})
}

// awaitEnds waits until every email is final and every bulk row is published. A killed worker's claims last a minute;
// claims older than ten seconds are ended early, since a running worker records its results within milliseconds.
func awaitEnds(s *system) {
	s.t.Helper()
	eventually(s.t, func() error {
		_, err := s.db.SQL.ExecContext(s.t.Context(), `UPDATE email_outbox SET lease_until = now() - interval '10 s'
			WHERE status = 'PROCESSING' AND lease_until BETWEEN now() AND now() + interval '50 s'`)
		if err != nil {
			return err
		}
		if left := storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM email_outbox WHERE processed_at IS NULL`); left > 0 {
			return fmt.Errorf("%d rows are not final: %s", left, s.statusCounts())
		}
		return nil
	})
	s.awaitQuietQueues()
}

// check compares what was promised with 202 with the database.
func (r *release) check() {
	r.t.Helper()
	for want, ids := range r.accepted {
		var others string
		n := storetest.Ask[int](r.t, r.db, `SELECT count(*) FROM email_outbox WHERE id = ANY ($1) AND status = $2`, pq.Array(ids), want)
		err := r.db.SQL.QueryRowContext(r.t.Context(), `SELECT coalesce(string_agg(id || ' ' || status || ' ' || coalesce(last_error, ''), ', '), '')
			FROM email_outbox WHERE id = ANY ($1) AND status <> $2`, pq.Array(ids), want).Scan(&others)
		if err != nil || n != len(ids) || n == 0 {
			r.t.Errorf("%s api: %d of %d emails are %s: %s, %v", r.name, n, len(ids), want, others, err)
		}
		r.t.Logf("%s api: %d emails are %s, %d recipients", r.name, n, want, len(r.people))
	}
	eventually(r.t, func() error {
		if n := storetest.Ask[int](r.t, r.db, `SELECT count(*) FROM recipients WHERE external_id = ANY ($1) AND nome LIKE 'Ana %'`, pq.Array(r.people)); n != len(r.people) {
			return fmt.Errorf("%s: %d of %d recipients are written down", r.name, n, len(r.people))
		}
		return nil
	})
}

// checkLedger compares the database with what the provider accepted.
func checkLedger(s *system) {
	s.t.Helper()
	summary := s.ses.Summary()
	if sent := storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM email_outbox WHERE status = 'SENT'`); summary.AcceptedOutboxIDs != int64(sent) {
		s.t.Errorf("%d emails are SENT, SES accepted %d", sent, summary.AcceptedOutboxIDs)
	}
	announced := 0
	for _, twice := range summary.Duplicates {
		n := storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM email_outbox WHERE id = $1 AND possible_duplicate`, twice.OutboxID)
		if announced += n; n == 0 {
			s.t.Errorf("%s was accepted %d times and is not flagged", twice.OutboxID, twice.Accepted)
		}
	}
	s.t.Logf("SES accepted %d emails, %d of them more than once, announced", summary.AcceptedOutboxIDs, announced)
	if n := storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM email_outbox o LEFT JOIN email_logs l ON l.outbox_id = o.id
		WHERE o.target = 'email:send' AND l.status IS DISTINCT FROM o.status`); n > 0 {
		s.t.Errorf("the log of %d emails differs from the outbox", n)
	}
}
