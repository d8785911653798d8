package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// pgbouncerLimit is how long after the return of PgBouncer the programs send again at the latest.
const pgbouncerLimit = 10 * time.Second

// Behind a PgBouncer that pools transactions, with fewer server connections than the programs have, no statement meets the
// statement of another process, though the programs are restarted under load.
func TestCluster_PgBouncerRestarts(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	c := startCluster(t, "pgbouncer")
	s := startClusterSystemOn(t, c)
	w := s.startWrites()
	for range 3 {
		for _, p := range []**program{&s.api, &s.dispatcher, &s.worker} {
			w.more(40)
			s.restart(p)
		}
	}
	w.more(40)
	if lost := w.lost(); lost > 0 {
		t.Errorf("%d accepted emails are lost", lost)
	}
	for answer, n := range w.others {
		if strings.Contains(answer, "ACCEPT_UNKNOWN") {
			t.Errorf("%d answers %s", n, answer)
		}
	}
	w.allSent()
	log, err := os.ReadFile(filepath.Join(c.dir, "clusters", "pgbouncer", "postgres-1", "postgres", "log"))
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`.*(bind message supplies|prepared statement).*`).FindAll(log, -1); len(found) > 0 {
		t.Errorf("Postgres logged %d statements that met another one, the first: %s", len(found), found[0])
	}

	env := map[string]string{"DATABASE_URL": c.Env["DATABASE_URL"], "DATABASE_LISTEN_URL": c.Env["DATABASE_LISTEN_URL"], "DATABASE_POOLED": "true"}
	if out := s.doctor(env); strings.Contains(out, "FAILURE   pooler") || !strings.Contains(out, "pooler") {
		t.Errorf("doctor:\n%s", out)
	}
	env["DATABASE_LISTEN_URL"] = env["DATABASE_URL"]
	if out := s.doctor(env); !strings.Contains(out, "DATABASE_LISTEN_URL leads to a pooler too") {
		t.Errorf("doctor, LISTEN through the pooler:\n%s", out)
	}
}

// PgBouncer killed under load: nothing that was accepted is lost.
func TestCluster_PgBouncerKilled(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	c := startCluster(t, "pgbouncer")
	s := startClusterSystemOn(t, c)
	w := s.startWrites()
	w.more(40)
	c.kill("pgbouncer-1")
	killed := time.Now()
	eventually(t, func() error { return s.readyIs(http.StatusServiceUnavailable, "disconnected") })
	c.start("pgbouncer-1")
	back := time.Now()
	t.Logf("PgBouncer was away for %s", back.Sub(killed).Round(100*time.Millisecond))
	within(t, "PgBouncer back: sending again", s.firstSent(back).Sub(back), pgbouncerLimit)
	w.more(40)
	if lost := w.lost(); lost > 0 {
		t.Errorf("%d accepted emails are lost", lost)
	}
	w.allSent()
}
