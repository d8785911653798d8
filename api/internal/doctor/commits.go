package doctor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"email-gateway/shared/store"
)

// replication checks that commits go through, and that a synchronous standby confirms them, if one is configured.
func (x *examination) replication(ctx context.Context) {
	const check = "replication"
	if x.server.ReadOnly { // reported by database
		return
	}
	err := x.Store.Confirm(ctx)
	switch standbys := x.server.SyncStandbys; {
	case standbys != "" && x.weak(x.server.SyncCommit):
		x.add(check, Failure, commitAdvice, "Commits do not wait for a synchronous standby (synchronous_standby_names = %s), because synchronous_commit is %s.",
			standbys, x.server.SyncCommit)
	case errors.Is(err, store.ErrUnreplicated):
		x.add(check, Failure, "Start the standby or repair its connection (primary_conninfo, application_name). To continue without one, clear synchronous_standby_names and reload; commits are then stored on one machine only.",
			"Commits wait for a synchronous standby (synchronous_standby_names = %s), but none confirms them: no email is accepted or sent.", standbys)
	case x.couldNot(check, err):
	case standbys != "":
		x.add(check, OK, "", "A synchronous standby confirms commits (synchronous_standby_names = %s).", standbys)
	}
}

const commitAdvice = "Set synchronous_commit to on (ALTER ROLE … RESET synchronous_commit, ALTER ROLE … IN DATABASE … RESET synchronous_commit, ALTER DATABASE … RESET synchronous_commit, and no such parameter in DATABASE_URL): a 202 promises that the email is not lost. Then restart the programs."

// weak reports whether a commit with this synchronous_commit may be lost: in a power failure, or, where there are
// synchronous standbys, with the primary. Postgres takes more words than on and off.
func (x *examination) weak(commit string) bool {
	lost := []string{"off", "false", "no", "0"}
	if x.server.SyncStandbys != "" {
		lost = append(lost, "local")
	}
	return slices.Contains(lost, strings.ToLower(commit))
}

// roleCommits checks the roles' synchronous_commit, because doctor's own connection has that of its own role. An api
// reports no status.
func (x *examination) roleCommits() {
	var weak []string
	for _, set := range x.server.RoleCommits {
		if _, commit, _ := strings.Cut(set, ": "); x.weak(commit) {
			weak = append(weak, set)
		}
	}
	x.addWeak(weak)
}

// processCommits checks the synchronous_commit that processes report.
func (x *examination) processCommits(alive []process) {
	var weak []string
	for _, p := range alive {
		if x.weak(p.SyncCommit) {
			weak = append(weak, p.name+": "+p.SyncCommit)
		}
	}
	x.addWeak(weak)
}

func (x *examination) addWeak(weak []string) {
	if len(weak) > 0 {
		x.add("database", Failure, commitAdvice, "Commits of %s may be lost: this is their synchronous_commit.", some(weak))
	}
}

// connections checks that Postgres has enough for the running programs and one api, which reports no status: for their pools, or
// for the least pools of a pooler, as in OPERATIONS.md. The pooler's own limits are not visible here.
func (x *examination) connections(alive []process) {
	const api, pooledAPI = 32, 20 // cmd/api: of 20, a company's requests may hold 16
	const leastBefore = 8         // of a process of an earlier release, which does not report it
	available := x.server.MaxConnections - x.server.ReservedConnections
	wanted, least := api, pooledAPI
	for _, p := range alive {
		wanted += p.Connections
		least += cmp.Or(p.LeastConnections, leastBefore)
	}
	switch pooled, _ := strconv.ParseBool(x.value("DATABASE_POOLED")); {
	case pooled && least > available:
		x.add("database", Warning, "Raise max_connections, and the pool sizes of the pooler with it.",
			"Behind the pooler, the running dispatchers and workers and one api need at least %d server connections, and Postgres has %d for programs.", least, available)
	case !pooled && wanted > available:
		x.add("database", Warning, "Raise max_connections, or use PgBouncer. Meanwhile requests wait for a connection.",
			"The running dispatchers and workers and one api may open %d connections, and Postgres has %d for programs.", wanted, available)
	}
}
