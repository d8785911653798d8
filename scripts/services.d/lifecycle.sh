# shellcheck shell=bash
#
# The operations of services.sh and clusters.sh on a service. While `node` is set, the service is that
# node of a cluster, and messages contain the node.

# foreign SERVICE: true if its URL is that of a service that is not ours.
foreign() {
	local name url
	name=$("$1_url_name")
	url=${!name:-}
	[[ -n $url && ! $url =~ 127\.0\.0\.1:$("$1_port")([/\&]|$) ]]
}

start() {
	local began=$EPOCHREALTIME
	if running "$1"; then
		say "${node:-$1} is running on 127.0.0.1:$("$1_port")"
		return
	fi
	make_home "$1"
	take_tls_files "$1"
	launch "$1"
	await_ready "$1"
	say "${node:-$1} is ready on 127.0.0.1:$("$1_port") after $(((${EPOCHREALTIME/./} - ${began/./}) / 1000)) ms"
}

stop() {
	running "$1" || return 0
	signal_and_wait "$1" "$("$1_stop_signal")"
	say "${node:-$1} has stopped"
}

restart() { stop "$1" && start "$1"; }

kill_hard() {
	running "$1" || die "${node:-$1} is not running"
	signal_and_wait "$1" KILL
	say "${node:-$1} was killed"
}

destroy() {
	stop "$1"
	remove_home "$1"
}

status() {
	if running "$1"; then
		echo "${node:-$1} running 127.0.0.1:$("$1_port") pid $(<"$LOCAL_DIR/$1/pid") log $LOCAL_DIR/$1/log"
	else
		echo "${node:-$1} stopped"
		return 1
	fi
}

env_line() {
	local name url
	name=$("$1_url_name")
	url=${!name:-$("$1_url")}
	echo "export $name=${url@Q}"
	if declare -F "$1_credentials" >/dev/null && ! foreign "$1"; then "$1_credentials"; fi
}

install_missing() {
	local service packages=()
	for service in "$@"; do
		if "${service}_installed"; then
			continue
		elif declare -F "${service}_install" >/dev/null; then
			"${service}_install" || die "$service could not be built"
		else
			packages+=("$("${service}_package")")
		fi
	done
	[[ ${#packages[@]} -gt 0 ]] || return 0
	# shellcheck disable=SC2154 # root: services.sh sets it
	"$root/scripts/install.sh" "${packages[@]}" ||
		die "run the system with 'docker compose up', or set DATABASE_URL, REDIS_URL and RABBITMQ_URL to existing services"
}
