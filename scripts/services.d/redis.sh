# shellcheck shell=bash
# Redis: appends every write to its log, syncs once a second, never evicts a key (a queue must not forget).

redis_package() { echo redis-server; }
redis_account() { echo redis; }
redis_port() { echo "$REDIS_PORT"; }
redis_port_names() { echo REDIS_PORT; }
redis_url_name() { echo REDIS_URL; }
redis_url() { echo "redis://127.0.0.1:$REDIS_PORT/0"; }
redis_stop_signal() { echo TERM; }
redis_installed() { command -v redis-server >/dev/null; }

redis_ready() { [[ $(redis-cli -p "$REDIS_PORT" ping 2>/dev/null) == PONG ]]; }

redis_run() {
	exec "$@" redis-server --port "$REDIS_PORT" --bind 127.0.0.1 --daemonize no \
		--appendonly yes --appendfsync everysec --save '' --maxmemory-policy noeviction
}
