package doctor

import (
	"context"
	"strconv"
	"strings"

	"email-gateway/shared/store"
)

// pooler detects transaction pooling, and checks the settings that it requires.
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
			"A pooler assigns each transaction a different connection to Postgres. Without DATABASE_POOLED the programs use prepared statements, which then may run the wrong statement.")
	}
	if !pooled && !set {
		return
	}
	if len(server.Unset) > 0 {
		x.add(check, Warning, "Run `migrate roles` with the permission to alter roles, or set them with ALTER ROLE … SET as in schema/roles.sql. Then reconnect the pooler (RECONNECT in PgBouncer's console).",
			"A pooler does not pass on connection settings, and the roles lack some: %s.", strings.Join(server.Unset, "; "))
	}
	if x.ListenPooled == nil {
		x.add(check, Skipped, "Run doctor with the dispatcher's DATABASE_LISTEN_URL.", "DATABASE_LISTEN_URL is not set here, so whether it bypasses the pooler is unknown.")
	} else if behind, err := x.ListenPooled(ctx); err != nil {
		x.add(check, Failure, "Point DATABASE_LISTEN_URL directly to Postgres.", "DATABASE_LISTEN_URL is not usable: %v", err)
	} else if behind {
		x.add(check, Failure, "Point DATABASE_LISTEN_URL directly to Postgres.", "DATABASE_LISTEN_URL leads to a pooler, which does not support LISTEN: new emails wait for OUTBOX_POLL_INTERVAL.")
	}
	if len(x.report.Findings) == before {
		x.add(check, OK, "", "The programs are configured for a pooler, their roles have the required settings, and LISTEN bypasses it.")
	}
}
