package e2e_test

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"

	"email-gateway/schema/pgurl"
	"email-gateway/shared/store/storetest"
)

// startClusterSystemOn migrates the database at the cluster's URL and starts the programs on it.
func startClusterSystemOn(t *testing.T, c *cluster) *system {
	t.Helper()
	migrate(t, c.Env["DATABASE_URL"], "up")
	// The test and its gatewayctl bypass a pooler.
	direct := cmp.Or(c.Env["DATABASE_LISTEN_URL"], c.Env["DATABASE_URL"])
	return startSystemOn(t, storetest.Database{URL: direct, SQL: openSQL(t, direct)}, c.Env)
}

func openSQL(t *testing.T, databaseURL string) *sql.DB {
	t.Helper()
	u, err := pgurl.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("binary_parameters", "yes")
	u.RawQuery = q.Encode()
	db, err := sql.Open("postgres", u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// writes sends emails from several clients, each waiting only for its response, while a test breaks Postgres.
// Requests may fail, but a 202 must hold.
type writes struct {
	s    *system
	stop chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex
	accepted []string       // outboxIds
	others   map[string]int // by status and code
}

const writers = 4

func (s *system) startWrites() *writes {
	w := &writes{s: s, stop: make(chan struct{}), others: map[string]int{}}
	client := *s // with this api, whose address all others have
	for n := range writers {
		w.done.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				w.one(&client, fmt.Sprintf("w%d-%d@example.com", n, i))
				select {
				case <-w.stop:
					return
				case <-tick.C:
				}
			}
		})
	}
	s.t.Cleanup(w.end)
	return w
}

func (w *writes) one(client *system, to string) {
	status, answer, err := client.try(http.MethodPost, "/v1/email/send", newBody(to, func(body map[string]any) {
		body["recipient"] = map[string]any{"externalId": to, "email": to}
	}), nil)
	var made struct{ OutboxID, Code string }
	_ = json.Unmarshal(answer, &made)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case status == http.StatusAccepted:
		w.accepted = append(w.accepted, made.OutboxID)
	case err != nil:
		w.others["no answer"]++
	default:
		w.others[fmt.Sprintf("%d %s", status, made.Code)]++
	}
}

func (w *writes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.accepted)
}

// more waits until n more emails are accepted.
func (w *writes) more(n int) {
	w.s.t.Helper()
	target := w.count() + n
	eventually(w.s.t, func() error {
		if got := w.count(); got < target {
			w.mu.Lock()
			defer w.mu.Unlock()
			return fmt.Errorf("%d of %d emails accepted; others: %v", got, target, w.others)
		}
		return nil
	})
}

func (w *writes) end() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.done.Wait()
}

// lost ends the writes and returns how many accepted emails the database does not have.
func (w *writes) lost() int {
	w.s.t.Helper()
	return len(w.missing())
}

// missing ends the writes and returns the accepted emails that the database does not have.
func (w *writes) missing() (ids []string) {
	w.s.t.Helper()
	w.end()
	err := w.s.db.SQL.QueryRowContext(w.s.t.Context(), `SELECT ARRAY(SELECT a FROM unnest($1::text[]) AS a WHERE NOT EXISTS (SELECT FROM email_outbox WHERE id = a::uuid))`,
		pq.Array(w.accepted)).Scan((*pq.StringArray)(&ids))
	if err != nil {
		w.s.t.Fatal(err)
	}
	w.s.t.Logf("%d emails accepted, other answers: %v", len(w.accepted), w.others)
	return ids
}

// allSent waits until all emails of the database are SENT, and checks in the simulator's ledger that each was sent
// once or is flagged.
func (w *writes) allSent() {
	w.s.t.Helper()
	eventually(w.s.t, func() error {
		var left int
		err := w.s.db.SQL.QueryRowContext(w.s.t.Context(), `SELECT count(*) FROM email_outbox WHERE target = 'email:send' AND status <> 'SENT'`).Scan(&left)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d emails are not SENT: %s", left, w.s.statusCounts())
		}
		return err
	})
	announcedDuplicates(w.s)
}

// firstSent returns when the first email created after the given time was sent.
func firstSent(s *system, after time.Time) time.Time {
	s.t.Helper()
	var first time.Time
	eventually(s.t, func() error {
		for _, e := range s.ses.Ledger() {
			if e.Accepted && madeAfter(e.OutboxID, after) {
				first = e.Time
				return nil
			}
		}
		return fmt.Errorf("nothing is sent: %s", s.statusCounts())
	})
	return first
}

// restart stops a program and starts it again at the same address.
func (s *system) restart(p **program) {
	s.t.Helper()
	(*p).stop()
	*p = startProgram(s.t, (*p).name, s.env, map[string]string{strings.ToUpper((*p).name) + "_ADDR": (*p).addr})
}

// doctor returns the output of gatewayctl doctor, ignoring its exit code.
func doctor(s *system, env map[string]string) string {
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(binDir, "gatewayctl"), "doctor")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(line string) bool { return len(line) > 8 && line[:8] == "DATABASE" })
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, _ := cmd.CombinedOutput()
	return string(out)
}
