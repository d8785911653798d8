package e2e_test

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// pgbouncerLimit is the maximum time between the return of PgBouncer and the next email.
const pgbouncerLimit = 10 * time.Second

// Behind a PgBouncer that pools transactions, with fewer server connections than the programs have, no statement
// conflicts with a statement of another process, even if the programs are restarted under load: single emails, a
// mailing, and imports of recipients.
func TestCluster_PgBouncerRestarts(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	c := startCluster(t, "pgbouncer")
	maps.Copy(c.Env, bulk(t, brokerURL(t)))
	s := startClusterSystemOn(t, c)
	w := s.startWrites()
	sheet := newSpreadsheet(t, 300)
	mailing, people := s.mail("pooled.csv", sheet, nil), 0
	for range 3 {
		for _, p := range []**program{&s.api, &s.dispatcher, &s.worker} {
			w.more(40)
			importPeople(s, people, people+50)
			people += 50
			s.restart(p)
		}
	}
	w.more(40)
	if m := s.awaitMailing(mailing, "COMPLETED"); m.Sent != len(sheet.people) {
		t.Errorf("%d of %d emails of the mailing are sent", m.Sent, len(sheet.people))
	}
	awaitImports(s)
	peopleAreComplete(s, 0, people)
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
		t.Errorf("Postgres logged %d statements that conflicted, the first: %s", len(found), found[0])
	}
}

// poolerLine is doctor's line about the pooler.
func poolerLine(s *system, env map[string]string, status, text string) {
	s.t.Helper()
	out := doctor(s, env)
	if !regexp.MustCompile(`(?m)^` + status + ` +pooler +.*` + regexp.QuoteMeta(text)).MatchString(out) {
		s.t.Errorf("doctor, want %s with %q:\n%s", status, text, out)
	}
}

// restartAs is restart with the program's own role.
func restartAs(s *system, p **program) {
	s.t.Helper()
	env := maps.Clone(s.env)
	for _, name := range []string{"DATABASE_URL", "DATABASE_LISTEN_URL"} {
		s.env[name] = as(s.t, env[name], "gateway_"+(*p).name)
	}
	s.restart(p)
	s.env = env
}

// Behind PgBouncer the settings of the programs are those of their roles. doctor reports what is missing: the roles'
// settings, DATABASE_POOLED, or a DATABASE_LISTEN_URL that bypasses the pooler.
func TestCluster_PgBouncerRoles(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	c := startCluster(t, "pgbouncer")
	s := startClusterSystemOn(t, c)
	if _, err := s.db.SQL.ExecContext(t.Context(), `CREATE ROLE gateway_api LOGIN`); err != nil {
		t.Fatal(err)
	}
	settings := func(role, want string) {
		t.Helper()
		var got string
		if err := openSQL(t, as(t, c.Env["DATABASE_URL"], role)).QueryRowContext(t.Context(), `SHOW statement_timeout`).Scan(&got); err != nil || got != want {
			t.Errorf("statement_timeout of %s behind the pooler is %q, want %q (%v)", role, got, want, err)
		}
	}
	settings("gateway_api", "0")
	env := maps.Clone(c.Env)
	poolerLine(s, env, "WARNING", "gateway_api: TimeZone, client_min_messages, default_transaction_isolation, enable_seqscan, idle_in_transaction_session_timeout, jit, search_path, statement_timeout")

	migrate(t, s.db.URL, "roles")
	c.script("ctl", "pgbouncer-1", "RECONNECT")
	env["DATABASE_URL"], env["DATABASE_LISTEN_URL"] = as(t, env["DATABASE_URL"], "gateway_operator"), as(t, env["DATABASE_LISTEN_URL"], "gateway_dispatcher")
	poolerLine(s, env, "ok", "their roles have the required settings")
	settings("gateway_api", "10s")
	settings("gateway_dispatcher", "30s")
	settings("gateway_worker", "30s")
	past := env["DATABASE_LISTEN_URL"]
	env["DATABASE_LISTEN_URL"] = env["DATABASE_URL"]
	poolerLine(s, env, "FAILURE", "DATABASE_LISTEN_URL leads to a pooler")
	env["DATABASE_LISTEN_URL"] = past

	for _, p := range []**program{&s.api, &s.dispatcher, &s.worker} {
		restartAs(s, p)
	}
	w := s.startWrites()
	w.more(40)
	w.end()
	w.allSent()
	for _, p := range []*program{s.api, s.dispatcher, s.worker} {
		if strings.Contains(p.logged(), "permission denied") {
			t.Errorf("%s:\n%s", p.name, p.tail())
		}
		role := "gateway_" + p.name
		if n := storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM pg_stat_activity WHERE usename = '`+role+`'`); n == 0 {
			t.Errorf("no server connection is %s's", role)
		}
	}

	delete(env, "DATABASE_POOLED")
	if out := doctor(s, env); !regexp.MustCompile(`(?m)^FAILURE +database .*\n.*Set DATABASE_POOLED=true`).MatchString(out) {
		t.Errorf("doctor without DATABASE_POOLED:\n%s", out)
	}
	// Many installations configure PgBouncer to ignore startup parameters that it does not forward.
	c.script("ctl", "pgbouncer-1", "SET ignore_startup_parameters = 'statement_timeout,idle_in_transaction_session_timeout,enable_seqscan,jit,client_min_messages,default_transaction_isolation,search_path'")
	poolerLine(s, env, "FAILURE", "Without DATABASE_POOLED the programs use prepared statements")
}

// PgBouncer is killed under load: no accepted email is lost.
func TestCluster_PgBouncerKilled(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	c := startCluster(t, "pgbouncer")
	s := startClusterSystemOn(t, c)
	w := s.startWrites()
	w.more(40)
	c.kill("pgbouncer-1")
	killed := time.Now()
	eventually(t, func() error { return readyIs(s, http.StatusServiceUnavailable, "disconnected") })
	c.start("pgbouncer-1")
	back := time.Now()
	t.Logf("PgBouncer was away for %s", back.Sub(killed).Round(100*time.Millisecond))
	within(t, "PgBouncer back: sending again", firstSent(s, back).Sub(back), pgbouncerLimit)
	w.more(40)
	if lost := w.lost(); lost > 0 {
		t.Errorf("%d accepted emails are lost", lost)
	}
	w.allSent()
}

// A PgBouncer that accepts fewer clients than the pool has connections refuses no statement: callers wait for an open connection.
func TestCluster_PgBouncerFull(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	c := startCluster(t, "pgbouncer")
	c.script("ctl", "pgbouncer-1", "SET max_client_conn = 8")
	s, err := store.Open(t.Context(), c.Env["DATABASE_URL"], store.Options{MaxConns: 32, Pooled: true, AllowUnreachable: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			for range 20 {
				if _, err := s.DB().Exec(t.Context(), "SELECT pg_sleep($1)", 0.01); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	if open := s.DB().Stats().OpenConnections; open > 8 {
		t.Errorf("%d connections", open)
	}
}
