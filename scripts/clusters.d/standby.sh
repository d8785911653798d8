# shellcheck shell=bash
#
# Postgres: a primary and a streaming standby. Each can have either role, see promote. STANDBY_SYNC=on
# (the default) makes commits of the primary wait for the standby, off does not.

wave postgres-1
wave postgres-2

synchronous() { [[ ${STANDBY_SYNC:-on} == on ]]; }

postgres_url() { echo "postgres://gateway@127.0.0.1:$POSTGRES_PORT/gateway?sslmode=disable"; }

# The standby is a copy of the primary; a primary that is started again is not changed.
configure() {
	local home=$LOCAL_DIR/postgres as
	as_account postgres
	if [[ $1 == postgres-2 && ! -d $home/data ]]; then
		(cd "$home" && "${as[@]}" "$(postgres_bin)/pg_basebackup" --pgdata=data --write-recovery-conf --wal-method=stream --checkpoint=fast \
			--dbname="host=127.0.0.1 port=$(port_of postgres-1 POSTGRES_PORT) user=gateway application_name=standby")
	fi
}

streams() {
	[[ $(query postgres-1 "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND application_name = 'standby'") == 1 ]]
}
confirms() { streams && [[ $(query postgres-1 "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == 1 ]]; }

# query NODE SQL
query() { "$(postgres_bin)/psql" --no-psqlrc --tuples-only --no-align --dbname="$(on "$1" postgres_url)" --command="$2"; }

form() {
	[[ $(query postgres-1 'SELECT pg_is_in_recovery()') == f && $(query postgres-2 'SELECT pg_is_in_recovery()') == t ]] || return 0
	await 30 streams
	if synchronous; then
		# Only the primary has the setting: a promoted standby does not wait for a standby.
		query postgres-1 "ALTER SYSTEM SET synchronous_standby_names = 'standby'" >/dev/null
		query postgres-1 'SELECT pg_reload_conf()' >/dev/null
		await 30 confirms
	fi
}

# promote NODE: makes a standby accept writes.
promote() { [[ $(query "$1" 'SELECT pg_promote(true, 30)') == t ]] || die "$1 was not promoted"; }

cluster_env() {
	local name hosts=
	for name in "$@"; do hosts+=,127.0.0.1:$(port_of "$name" POSTGRES_PORT); done
	echo "export DATABASE_URL='postgres://gateway@${hosts#,}/gateway?sslmode=disable&target_session_attrs=read-write'"
}
