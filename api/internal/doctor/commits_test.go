package doctor_test

import (
	"strings"
	"testing"

	"email-gateway/api/internal/doctor"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// doctor checks the commits of the programs, whose connections may have another setting than its own.
func TestExamine_CommitsOfPrograms(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	exec(t, d, `DO $$ BEGIN EXECUTE format('ALTER ROLE gateway_worker IN DATABASE %I SET synchronous_commit = off', current_database()); END $$`)
	wants(t, "a role", doctor.Examine(t.Context(), p), "failure database: Commits of gateway_worker: off may be lost")
	exec(t, d, `DO $$ BEGIN EXECUTE format('ALTER ROLE gateway_worker IN DATABASE %I RESET synchronous_commit', current_database()); END $$`)
	wants(t, "no role", doctor.Examine(t.Context(), p))

	weak, err := store.Open(t.Context(), d.URL+"&synchronous_commit=off", store.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(weak.Close)
	worker := storetest.Database{Store: weak}
	report(t, worker, "worker", "here-2", `{"redis":{"status":"connected"},"ses":{"status":"connected"},"rabbitmq":{"status":"connected"},"consumers":4}`)
	wants(t, "a process", doctor.Examine(t.Context(), p), "failure database: Commits of worker here-2: off may be lost")
}

// With synchronous standbys, a commit that only the primary has may be lost too.
func TestExamine_LocalCommits(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	local, err := store.Open(t.Context(), d.URL+"&synchronous_commit=local", store.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(local.Close)
	p.Store = local
	wants(t, "without standbys", doctor.Examine(t.Context(), p))
	p.Store = otherServer{local, func(s *store.Server) { s.SyncStandbys = "x" }}
	wants(t, "with standbys", doctor.Examine(t.Context(), p),
		"failure replication: Commits do not wait for a synchronous standby (synchronous_standby_names = x), because synchronous_commit is local.")
}

// The pools of the programs that run need more connections than Postgres has.
func TestExamine_Connections(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	report(t, d, "worker", "here-2", `{"redis":{"status":"connected"},"ses":{"status":"connected"},"rabbitmq":{"status":"connected"},"consumers":4,"connections":20,"leastConnections":8}`)
	report(t, d, "dispatcher", "here-1", `{"redis":{"status":"connected"},"rabbitmq":{"status":"connected"},"storage":{"status":"connected"},"leastConnections":5}`)
	limit := func(n int) {
		p.Store = otherServer{d.Store, func(s *store.Server) { s.Connections, s.MaxConnections, s.ReservedConnections = 1, n, 3 }}
	}
	limit(55)
	wants(t, "enough", doctor.Examine(t.Context(), p))
	limit(54)
	wants(t, "too few", doctor.Examine(t.Context(), p), "warning database: The running dispatchers and workers and one api may open 52 connections, and Postgres has 51 for programs.")
	p.Environ = append(p.Environ, "DATABASE_POOLED=true")
	need := func() (found string) {
		for _, line := range lines(doctor.Examine(t.Context(), p)) {
			if strings.Contains(line, "may open") || strings.Contains(line, "need at least") {
				found += line
			}
		}
		return found
	}
	limit(36)
	if got := need(); got != "" {
		t.Errorf("with a pooler: %s", got)
	}
	limit(35)
	want := "warning database: Behind the pooler, the running dispatchers and workers and one api need at least 33 server connections, and Postgres has 32 for programs."
	if got := need(); got != want {
		t.Errorf("with a pooler: %q, want %q", got, want)
	}
}
