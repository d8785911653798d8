# shellcheck shell=bash
# PostgreSQL: a cluster of its own, the superuser gateway without a password (loopback only), the database gateway.

postgres_package() { echo postgresql; }
postgres_account() { echo postgres; }
postgres_port() { echo "$POSTGRES_PORT"; }
postgres_port_names() { echo POSTGRES_PORT; }
postgres_url_name() { echo DATABASE_URL; }
postgres_url() {
	local mode=disable
	! speaks_tls postgres || mode="verify-full&sslrootcert=$LOCAL_DIR/postgres/tls/ca.pem"
	echo "postgres://gateway@127.0.0.1:$POSTGRES_PORT/gateway?sslmode=$mode"
}
postgres_stop_signal() { echo INT; } # "fast": ends the sessions instead of waiting for them

# Debian installs the programs of each major version in a separate folder, outside PATH.
postgres_bin() {
	local newest
	newest=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
	[[ -x $newest/postgres ]] || newest=$(dirname "$(command -v postgres)")
	echo "$newest"
}
postgres_installed() { [[ -x $(postgres_bin)/postgres ]]; }

postgres_ready() { "$(postgres_bin)/pg_isready" -q -h 127.0.0.1 -p "$POSTGRES_PORT"; }

# No unix socket: its path is limited to 107 bytes, which a checkout's path may exceed.
postgres_run() {
	local tls=() wal=4GB
	[[ -z ${SERVICES_BASE:-} ]] || wal=1GB # which may be memory
	[[ -d data ]] || postgres_create "${@:2}"
	if speaks_tls postgres; then
		echo 'hostssl all all 127.0.0.1/32 trust' >tls/pg_hba.conf
		chmod 644 tls/pg_hba.conf
		tls=(-c ssl=on -c ssl_cert_file="$PWD/tls/server.pem" -c ssl_key_file="$PWD/tls/server.key" -c hba_file="$PWD/tls/pg_hba.conf")
	fi
	# Twelve concurrent tests have up to 20 connections each: beyond max_connections they would fail.
	exec "$@" "$(postgres_bin)/postgres" -D data \
		-c listen_addresses=127.0.0.1 -c port="$POSTGRES_PORT" -c unix_socket_directories= \
		-c fsync=on -c synchronous_commit=on \
		-c max_connections=500 -c max_prepared_transactions=20 -c shared_buffers=256MB -c max_wal_size="$wal" "${tls[@]}"
}

# postgres_create: uses a temporary name until it is complete, so that an interrupted creation starts again. The database
# has the setting that schema/roles.sql gives the programs' roles, because here they log in as the superuser.
postgres_create() {
	rm -rf data.new
	"$@" "$(postgres_bin)/initdb" -D data.new -U gateway --auth=trust --encoding=UTF8 --locale=C.UTF-8 --no-sync
	"$@" "$(postgres_bin)/postgres" --single -D data.new postgres <<-'SQL'
		CREATE DATABASE gateway
		ALTER DATABASE gateway SET idle_in_transaction_session_timeout = '5s'
	SQL
	mv data.new data
}
