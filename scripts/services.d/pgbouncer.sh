# shellcheck shell=bash
# PgBouncer: pools transactions on few server connections. A cluster's file writes pgbouncer.ini, with the database behind it.

pgbouncer_package() { echo pgbouncer; }
pgbouncer_account() { echo postgres; } # its package creates no account
pgbouncer_port() { echo "$PGBOUNCER_PORT"; }
pgbouncer_port_names() { echo PGBOUNCER_PORT; }
pgbouncer_url_name() { echo DATABASE_URL; }
pgbouncer_url() { echo "postgres://gateway@127.0.0.1:$PGBOUNCER_PORT/gateway?sslmode=disable"; }
pgbouncer_stop_signal() { echo TERM; } # exits immediately
pgbouncer_installed() { command -v pgbouncer >/dev/null; }
pgbouncer_ready() { "$(postgres_bin)/pg_isready" -q -h 127.0.0.1 -p "$PGBOUNCER_PORT"; }

pgbouncer_run() { exec "$@" pgbouncer -q pgbouncer.ini; }
