# shellcheck shell=bash
#
# Redis: appends every write to its log, syncs once a second, never evicts a key (a queue must not
# lose tasks).

redis_package() { echo redis-server; }
redis_account() { echo redis; }
redis_port() { echo "$REDIS_PORT"; }
redis_port_names() { echo REDIS_PORT; }
redis_url_name() { echo REDIS_URL; }
redis_url() {
	local scheme=redis
	! speaks_tls redis || scheme=rediss
	echo "$scheme://127.0.0.1:$REDIS_PORT/0"
}
redis_stop_signal() { echo TERM; }
redis_installed() { command -v redis-server >/dev/null; }

redis_ready() {
	local tls=()
	! speaks_tls redis || tls=(--tls --cacert "$LOCAL_DIR/redis/tls/ca.pem")
	[[ $(redis-cli -p "$REDIS_PORT" "${tls[@]}" ping 2>/dev/null) == PONG ]]
}

redis_run() {
	local listen=(--port "$REDIS_PORT")
	! speaks_tls redis || listen=(--port 0 --tls-port "$REDIS_PORT" --tls-auth-clients no --tls-ca-cert-file "$PWD/tls/ca.pem"
		--tls-cert-file "$PWD/tls/server.pem" --tls-key-file "$PWD/tls/server.key")
	# A node of a cluster has a redis.conf, which the server itself rewrites when its role changes.
	[[ ! -f redis.conf ]] || listen=(redis.conf "${listen[@]}")
	exec "$@" redis-server "${listen[@]}" --bind 127.0.0.1 --daemonize no \
		--appendonly yes --appendfsync everysec --save '' --maxmemory-policy noeviction
}
