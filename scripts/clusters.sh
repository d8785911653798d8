#!/usr/bin/env bash
# Usage: scripts/clusters.sh start|stop|destroy|kill|freeze|thaw|status|env|promote NAME [NODE...]
#        scripts/clusters.sh ctl NAME NODE ARGUMENTS...      the tool of the node's server: rabbitmqctl, or PgBouncer's console
#
# Clusters for tests: private servers under $LOCAL_DIR/clusters/NAME/NODE (LOCAL_DIR defaults to .local), listening on
# loopback only. NAME is a file of clusters.d. Without NODE the command applies to all nodes. start also forms the cluster;
# with NODE it starts nodes that were stopped or killed. kill is SIGKILL, freeze is SIGSTOP and thaw is SIGCONT, each for
# the node's process and its children. stop keeps the data, destroy removes it. env prints the cluster's URL, with NODE the
# node's own. promote makes a standby of Postgres the primary.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LOCAL_DIR=${LOCAL_DIR:-.local}
[[ $LOCAL_DIR == /* ]] || LOCAL_DIR=$root/$LOCAL_DIR
readonly root

say() { printf '%s\n' "$*" >&2; }
die() { say "clusters: $*"; exit 1; }
usage() { sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}" >&2 && exit 2; }

for part in ports home tls process lifecycle postgres pgbouncer redis sentinel rabbitmq; do
	# shellcheck source=/dev/null
	source "$root/scripts/services.d/$part.sh"
done
# Ignore the environment's ports and URLs, which belong to other servers.
unset POSTGRES_PORT REDIS_PORT RABBITMQ_PORT RABBITMQ_DIST_PORT RABBITMQ_EPMD_PORT TLS_DIR DATABASE_URL REDIS_URL RABBITMQ_URL

command=${1:-} cluster=${2:-}
[[ -n $cluster && -f $root/scripts/clusters.d/$cluster.sh ]] || usage
shift 2
LOCAL_DIR=$LOCAL_DIR/clusters/$cluster
readonly LOCAL_CLUSTER=$LOCAL_DIR

waves=() all=()
# wave NODE...: nodes that start at the same time, after those of the previous wave.
wave() { waves+=("$*") && all+=("$@"); }

# Each of these files lists its nodes with wave, and defines
#   configure NODE        writes additional configuration into the node's directory; runs before every start
#   form NODE...          forms a cluster of the ready nodes, unless it exists, and waits until it is complete
#   cluster_env NODE...   prints the cluster's URL as "export NAME=value"
# The name of a node is SERVICE-NUMBER; SERVICE is one of services.d.
# shellcheck source=/dev/null
source "$root/scripts/clusters.d/$cluster.sh"

# enter NODE: makes this shell use the node. Only for subshells.
enter() {
	node=$1 service=${1%-*} LOCAL_DIR=$LOCAL_CLUSTER/$1
	mkdir -p "$LOCAL_DIR"
	drop_stale_link "$service"
	load_ports "$service"
}

# port_of NODE NAME: a port of another node. start chooses the ports of all nodes before it configures the first one.
port_of() { sed -n "s/^$2=//p" "$LOCAL_CLUSTER/$1/ports"; }

# on NODE COMMAND...: runs it with the node's variables.
on() (
	enter "$1"
	"${@:2}"
)

# await SECONDS COMMAND...: waits until it succeeds.
await() {
	local deadline=$((SECONDS + $1))
	until "${@:2}"; do
		((SECONDS <= deadline)) || die "$cluster: not within $1 s: ${*:2}"
		sleep 0.1
	done
}

start_node() {
	enter "$1"
	running "$service" || { make_home "$service" && configure "$1"; }
	start "$service"
}
stop_node() { enter "$1" && signal_family "$service" CONT && stop "$service"; }
destroy_node() { stop_node "$1" && remove_home "$service" && rm -rf "$LOCAL_DIR"; }
kill_node() { enter "$1" && kill_hard "$service"; }
freeze_node() { enter "$1" && signal_family "$service" STOP; }
thaw_node() { enter "$1" && signal_family "$service" CONT; }

start_cluster() {
	local wave names
	for wave in "${waves[@]}"; do
		read -ra names <<<"$wave"
		each start_node "${names[@]}"
	done
	form "${all[@]}"
	say "the cluster $cluster is ready"
}

chosen=("$@")
[[ $command != ctl ]] || chosen=("${1:-}")
for node in "${chosen[@]}"; do
	[[ " ${all[*]} " == *" $node "* ]] || die "$cluster has no node $node, but ${all[*]}"
done
node=
[[ $# -gt 0 ]] || chosen=("${all[@]}")
[[ $command == start || -d $LOCAL_DIR ]] || [[ $command == destroy ]] || die "$cluster was not started"
mkdir -p "$LOCAL_DIR"

case $command in
start)
	mapfile -t services < <(printf '%s\n' "${all[@]%-*}" | sort -u)
	install_missing "${services[@]}"
	for name in "${all[@]}"; do on "$name" true; done
	if [[ $# -gt 0 ]]; then each start_node "$@"; else start_cluster; fi
	;;
stop | kill | freeze | thaw) each "${command}_node" "${chosen[@]}" ;;
destroy)
	each destroy_node "${chosen[@]}"
	[[ $# -gt 0 ]] || rm -rf "$LOCAL_DIR"
	;;
status)
	failed=0
	for name in "${chosen[@]}"; do on "$name" status "${name%-*}" || failed=1; done
	exit "$failed"
	;;
ctl) on "$1" "${1%-*}_ctl" "${@:2}" ;;
env)
	if [[ $# -eq 0 ]]; then
		cluster_env "${all[@]}"
	else
		for name in "$@"; do on "$name" env_line "${name%-*}"; done
	fi
	;;
promote)
	[[ $# -gt 0 ]] || usage
	declare -F promote >/dev/null || die "$cluster has nothing to promote"
	each promote "$@"
	;;
*) usage ;;
esac
