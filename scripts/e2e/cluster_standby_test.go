package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The limits that README.md and OPERATIONS.md state for a busy machine.
const (
	// promotedLimit is the maximum time between the promotion of a standby and the next email.
	promotedLimit = 15 * time.Second
	// standbyLimit is the maximum time between the return of the standby and the next email.
	standbyLimit = 10 * time.Second
	// refusedLimit is how long a request without Idempotency-Key waits for its 503 while no standby confirms, and
	// refusedKeyLimit a request with a key.
	refusedLimit    = 17 * time.Second
	refusedKeyLimit = 7 * time.Second
	// refusedMargin is the additional time of a busy machine.
	refusedMargin = 3 * time.Second
	// waitingLimit is the maximum number of server connections that wait for a standby.
	waitingLimit = 24
)

// within logs a duration and fails the test if it exceeds the limit.
func within(t *testing.T, what string, took, limit time.Duration) {
	t.Helper()
	took = max(took, 0).Round(10 * time.Millisecond)
	t.Logf("%s after %s", what, took)
	if took > limit {
		t.Errorf("%s after %s, want %s at most", what, took, limit)
	}
}

// failover kills the primary under load, promotes the standby, and checks how long nothing was sent.
func failover(t *testing.T, c *cluster, s *system, w *writes) {
	t.Helper()
	w.more(100)
	c.kill("postgres-1")
	killed := time.Now()
	c.script("promote", "postgres-2")
	promoted := time.Now()
	sent := firstSent(s, promoted)
	t.Logf("primary killed; promoted after %s", promoted.Sub(killed).Round(10*time.Millisecond))
	within(t, "promoted: sending again", sent.Sub(promoted), promotedLimit)
	w.more(100)
}

// A synchronous standby is promoted after the primary has failed: it has every accepted email, and all of them are
// sent.
func TestCluster_StandbyPromoted(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	c := startCluster(t, "standby")
	s := startClusterSystemOn(t, c)
	w := s.startWrites()
	failover(t, c, s, w)
	if lost := w.lost(); lost > 0 {
		t.Errorf("%d accepted emails are lost", lost)
	}
	w.allSent()
}

// While the synchronous standby is down, no request is answered with 202, every status output names the reason, and
// few server connections wait. When it is back, the gateway continues.
func TestCluster_StandbyGone(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	c := startCluster(t, "standby")
	s := startClusterSystemOn(t, c)
	first := s.send("first@example.com", nil)
	s.await(first, "SENT")
	key := map[string]string{"Idempotency-Key": "known"}
	if status, answer := s.call(http.MethodPost, "/v1/email/send", newBody("known@example.com", nil), key); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	c.kill("postgres-2")
	gone := time.Now()
	for _, key := range []string{"", "new", "new", "known"} {
		headers := map[string]string{}
		to, limit := "gone@example.com", refusedLimit
		if key != "" {
			headers["Idempotency-Key"], to, limit = key, key+"@example.com", refusedKeyLimit
		}
		asked := time.Now()
		status, answer := s.call(http.MethodPost, "/v1/email/send", newBody(to, nil), headers)
		within(t, fmt.Sprintf("key %q: %d %s", key, status, answer), time.Since(asked), limit+refusedMargin)
		if status != http.StatusServiceUnavailable {
			t.Errorf("key %q: %d %s, want 503", key, status, answer)
		}
	}
	eventually(t, func() error { return readyIs(s, http.StatusServiceUnavailable, "unreplicated") })
	if status, answer, err := s.try(http.MethodGet, "/health", nil, nil); status != http.StatusServiceUnavailable || !strings.Contains(string(answer), `"unreplicated"`) {
		t.Errorf("/health: %d %s %v", status, answer, err)
	}
	out := doctor(s, map[string]string{"DATABASE_URL": c.Env["DATABASE_URL"], "API_URL": "http://" + s.api.addr})
	for _, line := range []string{"Commits wait for a synchronous standby", "no synchronous standby confirms its commits"} {
		if !strings.Contains(out, line) {
			t.Errorf("doctor does not say %q:\n%s", line, out)
		}
	}
	for _, p := range []*program{s.api, s.dispatcher, s.worker} {
		eventually(t, func() error {
			if up := p.metric("gateway_dependency_up", "replication"); up != 0 {
				return fmt.Errorf("%s shows replication as %v", p.name, up)
			}
			return nil
		})
	}
	w := s.startWrites()
	most := 0
	eventually(t, func() error {
		var waiting int
		if err := s.db.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&waiting); err != nil {
			return err
		}
		if most = max(most, waiting); time.Since(gone) < 75*time.Second {
			return errors.New("sampling")
		}
		return nil
	})
	t.Logf("at most %d server connections waited", most)
	if most > waitingLimit {
		t.Errorf("%d server connections waited at a time, want %d at most", most, waitingLimit)
	}
	if n := w.count(); n > 0 {
		t.Errorf("%d emails were accepted without a standby", n)
	}
	c.start("postgres-2")
	back := time.Now()
	within(t, "standby back: sending again", firstSent(s, back).Sub(back), standbyLimit)
	w.more(40)
	if lost := w.lost(); lost > 0 {
		t.Errorf("%d accepted emails are lost", lost)
	}
	w.allSent()
}

// readyIs checks the api's /readyz.
func readyIs(s *system, want int, word string) error {
	status, answer, err := s.try(http.MethodGet, "/readyz", nil, nil)
	if err == nil && (status != want || !strings.Contains(string(answer), word)) {
		err = fmt.Errorf("/readyz: %d %s", status, answer)
	}
	return err
}
