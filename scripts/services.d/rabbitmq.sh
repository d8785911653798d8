# shellcheck shell=bash
#
# RabbitMQ: a node with its own Erlang port mapper, cookie and data, separate from other brokers on
# the machine. clusters.d/rabbitmq.sh redefines the first three functions: the nodes of a cluster share a port mapper.

rabbitmq_node() { echo gateway@localhost; }
rabbitmq_epmd_port() { echo "$RABBITMQ_EPMD_PORT"; }
rabbitmq_erl_args() { :; }
readonly rabbitmq_server=/usr/lib/rabbitmq/bin/rabbitmq-server # the one in PATH is a wrapper around the system's own

rabbitmq_package() { echo rabbitmq-server; }
rabbitmq_account() { echo rabbitmq; }
rabbitmq_port() { echo "$RABBITMQ_PORT"; }
rabbitmq_port_names() { echo RABBITMQ_PORT RABBITMQ_DIST_PORT RABBITMQ_EPMD_PORT; }
rabbitmq_url_name() { echo RABBITMQ_URL; }
rabbitmq_url() {
	local scheme=amqp
	! speaks_tls rabbitmq || scheme=amqps
	echo "$scheme://gateway:gateway@127.0.0.1:$RABBITMQ_PORT/"
}
rabbitmq_stop_signal() { echo TERM; }
rabbitmq_installed() { [[ -x $rabbitmq_server ]]; }

# rabbitmq_ready: the broker answers AMQP's protocol header with a method frame (type 1). Listening is the last step of its
# startup, so under TLS an open port is enough.
rabbitmq_ready() (
	exec 8<>"/dev/tcp/127.0.0.1/$RABBITMQ_PORT" || exit
	! speaks_tls rabbitmq || exit 0
	printf 'AMQP\0\0\11\1' >&8
	IFS= read -r -N 1 -t 2 frame <&8
	[[ $frame == $'\1' ]]
) 2>/dev/null

rabbitmq_run() {
	local home=$PWD
	printf '[].\n' >enabled_plugins
	cat >rabbitmq.conf <<-CONFIG
		listeners.tcp.local = 127.0.0.1:$RABBITMQ_PORT
		default_user = gateway
		default_pass = gateway
	CONFIG
	if speaks_tls rabbitmq; then
		cat >>rabbitmq.conf <<-CONFIG
			listeners.tcp = none
			listeners.ssl.local = 127.0.0.1:$RABBITMQ_PORT
			ssl_options.cacertfile = $home/tls/ca.pem
			ssl_options.certfile = $home/tls/server.pem
			ssl_options.keyfile = $home/tls/server.key
			ssl_options.verify = verify_none
		CONFIG
		sed -i '/^listeners.tcp.local/d' rabbitmq.conf
	fi
	[[ ! -f cluster.conf ]] || cat cluster.conf >>rabbitmq.conf
	chmod 644 enabled_plugins rabbitmq.conf
	if [[ -n ${RABBITMQ_EPMD_PORT:-} ]]; then
		"$@" epmd -address 127.0.0.1 -port "$RABBITMQ_EPMD_PORT" &
		echo $! >epmd.pid
	fi
	# RUNNING_UNDER_SYSTEMD makes the start script exec the Erlang VM instead of waiting for it, so that the recorded pid is
	# the VM's. +sbwt none: idle schedulers sleep instead of spinning on a core that the tests need.
	exec "$@" \
		RUNNING_UNDER_SYSTEMD=true \
		ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT="$(rabbitmq_epmd_port)" \
		RABBITMQ_NODENAME="$(rabbitmq_node)" RABBITMQ_DIST_PORT="$RABBITMQ_DIST_PORT" \
		RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none $(rabbitmq_erl_args)" \
		RABBITMQ_CONF_ENV_FILE="$home/none" RABBITMQ_ADVANCED_CONFIG_FILE="$home/none" \
		RABBITMQ_CONFIG_FILE="$home/rabbitmq.conf" RABBITMQ_ENABLED_PLUGINS_FILE="$home/enabled_plugins" \
		RABBITMQ_MNESIA_BASE="$home/data" RABBITMQ_SCHEMA_DIR="$home/schema" \
		RABBITMQ_LOG_BASE="$home" RABBITMQ_LOGS=- \
		"$rabbitmq_server"
}

# rabbitmq_ctl ARGUMENTS...: rabbitmqctl for our node.
rabbitmq_ctl() {
	local as home
	running rabbitmq || die "rabbitmq is not running"
	as_account rabbitmq
	home=$(readlink -f "$LOCAL_DIR/rabbitmq")
	cd "$home" || exit
	exec "${as[@]}" env HOME="$home" LC_ALL=C.UTF-8 \
		ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT="$(rabbitmq_epmd_port)" \
		RABBITMQ_NODENAME="$(rabbitmq_node)" RABBITMQ_CONF_ENV_FILE="$home/none" \
		/usr/lib/rabbitmq/bin/rabbitmqctl --quiet "$@"
}
