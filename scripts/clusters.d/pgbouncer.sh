# shellcheck shell=bash
#
# PgBouncer in transaction mode in front of one Postgres. Its pool is smaller than the programs'
# pools, so that server connections switch clients all the time. PgBouncer ignores no startup parameter: it refuses a
# program that sends a setting.

wave postgres-1
wave pgbouncer-1

configure() {
	[[ $1 == pgbouncer-1 ]] || return 0
	own_file pgbouncer "$LOCAL_DIR/pgbouncer/users.txt" "$(printf '"%s" ""\n' gateway gateway_{api,dispatcher,worker,operator,privacy})"
	own_file pgbouncer "$LOCAL_DIR/pgbouncer/pgbouncer.ini" "[databases]
* = host=127.0.0.1 port=$(port_of postgres-1 POSTGRES_PORT)
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $PGBOUNCER_PORT
unix_socket_dir =
auth_type = trust
auth_file = users.txt
admin_users = gateway
pool_mode = transaction
default_pool_size = 8
max_client_conn = 500"
}

form() { :; }

# pgbouncer_ctl COMMAND: on PgBouncer's console.
pgbouncer_ctl() {
	"$(postgres_bin)/psql" --no-psqlrc --tuples-only --no-align --dbname="postgres://gateway@127.0.0.1:$PGBOUNCER_PORT/pgbouncer" --command="$*"
}

cluster_env() {
	on pgbouncer-1 env_line pgbouncer
	echo "export DATABASE_LISTEN_URL='$(on postgres-1 postgres_url)'"
	echo "export DATABASE_POOLED='true'"
}
