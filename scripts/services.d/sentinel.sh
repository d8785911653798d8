# shellcheck shell=bash
#
# Redis Sentinel: monitors a Redis server and its replicas, and promotes a replica when the server
# does not respond.

sentinel_package() { echo redis-server; } # the same program
sentinel_account() { echo redis; }
sentinel_port() { echo "$SENTINEL_PORT"; }
sentinel_port_names() { echo SENTINEL_PORT; }
sentinel_url_name() { echo SENTINEL_URL; }
sentinel_url() { echo "redis://127.0.0.1:$SENTINEL_PORT"; }
sentinel_stop_signal() { echo TERM; }
sentinel_installed() { command -v redis-server >/dev/null; }
sentinel_ready() { [[ $(redis-cli -p "$SENTINEL_PORT" ping 2>/dev/null) == PONG ]]; }

# It stores its state in sentinel.conf, which must exist when it starts.
sentinel_run() { exec "$@" redis-server sentinel.conf --sentinel --port "$SENTINEL_PORT" --bind 127.0.0.1 --daemonize no; }
