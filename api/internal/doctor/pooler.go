package doctor

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"email-gateway/shared/store"
)

// replication looks whether commits go through where they wait for a standby.
func (x *examination) replication(ctx context.Context, server store.Server) {
	const check = "replication"
	if server.SyncStandbys == "" || server.Standby {
		return
	}
	switch err := x.Store.Confirm(ctx); {
	case errors.Is(err, store.ErrUnreplicated):
		x.add(check, Failure, "Start the standby or mend its connection (primary_conninfo, application_name). To go on without one, empty synchronous_standby_names and reload: what the primary commits then is on one machine only.",
			"Commits wait for a synchronous standby (synchronous_standby_names = %s), and none confirms them: nothing is accepted and nothing is sent.", server.SyncStandbys)
	case x.couldNot(check, err):
	default:
		x.add(check, OK, "", "A synchronous standby confirms what is committed (synchronous_standby_names = %s).", server.SyncStandbys)
	}
}

// pooler looks for one that pools transactions, and for what the programs need beside it.
func (x *examination) pooler(ctx context.Context, server store.Server) {
	const check = "pooler"
	pooled, err := x.Store.Pooled(ctx)
	if x.couldNot(check, err) {
		return
	}
	set, _ := strconv.ParseBool(x.value("DATABASE_POOLED"))
	before := len(x.report.Findings)
	if pooled && !set {
		x.add(check, Failure, "Set DATABASE_POOLED=true for api, dispatcher, worker and gatewayctl.",
			"A pooler gives each transaction another connection to Postgres. Without DATABASE_POOLED the programs prepare statements, of which one may be run in place of another.")
	}
	if !pooled && !set {
		return
	}
	if len(server.Unset) > 0 {
		x.add(check, Warning, "Run `migrate roles` as one who may alter the roles, or set them by ALTER ROLE … SET, as schema/roles.sql does. Then reconnect the pooler (RECONNECT in PgBouncer's console).",
			"A pooler takes no settings from the programs, and their roles lack some: %s.", strings.Join(server.Unset, "; "))
	}
	if x.ListenPooled == nil {
		x.add(check, Skipped, "Run it with the dispatcher's DATABASE_LISTEN_URL.", "Whether the dispatcher's DATABASE_LISTEN_URL leads past the pooler is not known here.")
	} else if behind, err := x.ListenPooled(ctx); err != nil {
		x.add(check, Failure, "Let DATABASE_LISTEN_URL name Postgres itself.", "DATABASE_LISTEN_URL cannot be used: %v", err)
	} else if behind {
		x.add(check, Failure, "Let DATABASE_LISTEN_URL name Postgres itself.", "DATABASE_LISTEN_URL leads to a pooler too, which loses LISTEN: new emails wait for OUTBOX_POLL_INTERVAL.")
	}
	if len(x.report.Findings) == before {
		x.add(check, OK, "", "The programs expect a pooler, their roles have the settings that it does not pass on, and LISTEN goes past it.")
	}
}
