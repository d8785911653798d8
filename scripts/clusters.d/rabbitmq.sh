# shellcheck shell=bash
#
# RabbitMQ: three nodes. The first starts alone, and the others join it. They find each other through
# a separate Erlang port mapper, which keeps running when a node is killed or frozen, as if each node had its own machine.

wave epmd-1
wave rabbitmq-1
wave rabbitmq-2 rabbitmq-3

rabbitmq_port_names() { echo RABBITMQ_PORT RABBITMQ_DIST_PORT; }
rabbitmq_epmd_port() { port_of epmd-1 EPMD_PORT; }
# shellcheck disable=SC2154 # node: clusters.sh sets it
rabbitmq_node() { echo "gateway-${node#*-}@localhost"; }
# net_ticktime: a node that does not respond for this long (±25 %) is declared down; until then its queues are unavailable.
# One scheduler: the nodes share the CPU with the tests.
rabbitmq_erl_args() { echo '-kernel net_ticktime 10 +S 1:1'; }

epmd_package() { rabbitmq_package; }
epmd_account() { rabbitmq_account; }
epmd_port() { echo "$EPMD_PORT"; }
epmd_port_names() { echo EPMD_PORT; }
epmd_url_name() { echo EPMD_URL; }
epmd_url() { echo "epmd://127.0.0.1:$EPMD_PORT"; }
epmd_stop_signal() { echo TERM; }
epmd_installed() { rabbitmq_installed; }
epmd_ready() { epmd -port "$EPMD_PORT" -names >/dev/null 2>&1; }
epmd_run() { exec "$@" epmd -address 127.0.0.1 -port "$EPMD_PORT"; }

# pause_minority: a node that does not reach a majority of the cluster stops serving, against split brain.
configure() {
	local cookie=$LOCAL_CLUSTER/cookie home=$LOCAL_DIR/rabbitmq
	if [[ $1 == epmd-1 ]]; then
		[[ -f $cookie ]] || head -c 16 /dev/urandom | sha256sum | cut -c1-32 >"$cookie"
		return
	fi
	own_file rabbitmq "$home/.erlang.cookie" "$(<"$cookie")"
	chmod 400 "$home/.erlang.cookie"
	own_file rabbitmq "$home/cluster.conf" "cluster_partition_handling = pause_minority
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 50MB
cluster_formation.peer_discovery_backend = classic_config
cluster_formation.classic_config.nodes.1 = gateway-1@localhost"
}

# All nodes are running, according to the first one.
complete() { [[ $(on rabbitmq-1 rabbitmq_ctl eval 'length(rabbit_mnesia:cluster_nodes(running)).') == 3 ]]; }

form() { await 30 complete; }

cluster_env() {
	local name hosts=
	for name in rabbitmq-{1..3}; do hosts+=,127.0.0.1:$(port_of "$name" RABBITMQ_PORT); done
	echo "export RABBITMQ_URL='amqp://gateway:gateway@${hosts#,}/'"
}
