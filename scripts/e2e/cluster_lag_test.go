package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lib/pq"

	"email-gateway/shared/store/storetest"
)

// An asynchronous standby that lags by seconds is promoted. Of emails two things are lost, as OPERATIONS.md says: those
// accepted after its last record, which are never sent from their tasks in Redis alone; and changes to emails that
// the standby has, which are sent again without a flag. All others are sent once or are flagged.
func TestCluster_StandbyAsynchronous(t *testing.T) {
	needsClusters(t)
	t.Setenv("STANDBY_SYNC", "off")
	c := startCluster(t, "standby")
	s := startClusterSystemOn(t, c)
	w := s.startWrites()
	w.more(100)
	// They are due while the standby lags, so the standby has them as PENDING.
	due := sendLater(s, 10, 15*time.Second)
	awaitStandby(s)
	behind := time.Now().Add(-lagMargin)
	c.freeze("postgres-2")
	frozen := time.Now()
	awaitSent(s, due)
	w.more(40)
	c.kill("postgres-1")
	t.Logf("the standby was frozen for %s before the primary was killed", time.Since(frozen).Round(100*time.Millisecond))
	// Data in the socket buffers of a standby on this machine is lost with its process, like data in a network in
	// between.
	c.restart("postgres-2")
	c.script("promote", "postgres-2")
	promoted := time.Now()
	within(t, "promoted: sending again", firstSent(s, promoted).Sub(promoted), promotedLimit)
	w.more(100)
	lost := w.missing()
	if len(lost) == 0 {
		t.Error("no accepted email is lost: the standby did not lag")
	}
	eventually(t, func() error {
		if left := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status <> 'SENT'"); left > 0 {
			return fmt.Errorf("%d emails are not SENT: %s", left, s.statusCounts())
		}
		return nil
	})
	checkLag(s, behind, promoted, lost)
}

// lagMargin is how far the standby may be behind on a busy machine when it is frozen.
const lagMargin = 5 * time.Second

// checkLag compares the simulator's ledger with the rows: an email sent twice without a flag was first sent between
// the start of the lag and the promotion, and no lost email is sent after the promotion.
func checkLag(s *system, behind, promoted time.Time, lost []string) {
	s.t.Helper()
	times, first, last := map[string]int{}, map[string]time.Time{}, map[string]time.Time{}
	for _, e := range s.ses.Ledger() {
		if !e.Accepted {
			continue
		}
		if times[e.OutboxID]++; times[e.OutboxID] == 1 {
			first[e.OutboxID] = e.Time
		}
		last[e.OutboxID] = e.Time
	}
	sentAndLost := 0
	for _, id := range lost {
		if !madeAfter(id, behind) {
			s.t.Errorf("%s is lost, and was accepted before the standby was behind", id)
		}
		if last[id].After(promoted) {
			s.t.Errorf("%s is lost, and was sent after the promotion", id)
		}
		if times[id] > 0 {
			sentAndLost++
		}
	}
	rows, err := s.db.SQL.QueryContext(s.t.Context(), "SELECT id, possible_duplicate FROM email_outbox WHERE target = 'email:send'")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	flagged, repeated := 0, 0
	for rows.Next() {
		var id string
		var says bool
		if err := rows.Scan(&id, &says); err != nil {
			s.t.Fatal(err)
		}
		switch {
		case times[id] == 0:
			s.t.Errorf("SES accepted %s never", id)
		case times[id] > 1 && says:
			flagged++
		case times[id] > 1 && first[id].After(behind) && first[id].Before(promoted):
			repeated++
		case times[id] > 1:
			s.t.Errorf("SES accepted %s %d times, first at %s; it has no flag", id, times[id], first[id])
		}
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("%d emails are lost, of which %d were sent; sent twice: %d without a flag, %d with it", len(lost), sentAndLost, repeated, flagged)
	if repeated == 0 {
		s.t.Error("none was sent twice without a flag: the standby did not lag")
	}
}

// sendLater sends emails that are due after delay.
func sendLater(s *system, n int, delay time.Duration) (ids []string) {
	s.t.Helper()
	at := time.Now().Add(delay).Format(time.RFC3339Nano)
	for i := range n {
		ids = append(ids, s.send(fmt.Sprintf("later%d@example.com", i), func(body map[string]any) { body["sendAt"] = at }))
	}
	return ids
}

func awaitSent(s *system, ids []string) {
	s.t.Helper()
	eventually(s.t, func() error {
		var sent int
		err := s.db.SQL.QueryRowContext(s.t.Context(), `SELECT count(*) FROM email_outbox WHERE id = ANY ($1::uuid[]) AND status = 'SENT'`, pq.Array(ids)).Scan(&sent)
		if err == nil && sent < len(ids) {
			err = fmt.Errorf("%d of %d emails are SENT", sent, len(ids))
		}
		return err
	})
}

// awaitStandby waits until the standby has everything that is committed now.
func awaitStandby(s *system) {
	s.t.Helper()
	var now string
	if err := s.db.SQL.QueryRowContext(s.t.Context(), `SELECT pg_current_wal_lsn()::text`).Scan(&now); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, func() error {
		if storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= '`+now+`'`) == 0 {
			return fmt.Errorf("the standby is behind %s", now)
		}
		return nil
	})
}
