#!/usr/bin/env bash
# Usage: scripts/services.sh start|stop|restart|kill|status|env|destroy [postgres] [redis] [rabbitmq] [s3]
#        scripts/services.sh rabbitmqctl ARGUMENTS...      e.g. list_queues name type messages arguments
#
# Private instances of the services under $LOCAL_DIR (default .local), listening on loopback only. Without a name all
# but s3 are meant: files need no server outside the tests. stop and destroy leave none running.
# POSTGRES_PORT, REDIS_PORT, RABBITMQ_PORT and S3_PORT name their ports; a port that is not named is chosen once and remembered.
# DATABASE_URL, REDIS_URL, RABBITMQ_URL or S3_URL pointing elsewhere name a real service: it is shown by env and otherwise
# left alone.
# TLS_DIR, a folder with ca.pem, server.pem and server.key, makes postgres, redis and rabbitmq speak TLS.
# kill is SIGKILL, for tests of what a crash does; stop keeps the data, destroy removes it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LOCAL_DIR=${LOCAL_DIR:-.local}
[[ $LOCAL_DIR == /* ]] || LOCAL_DIR=$root/$LOCAL_DIR
readonly root LOCAL_DIR

say() { printf '%s\n' "$*" >&2; }
die() { say "services: $*"; exit 1; }

# Each of these files tells the same few things of its service: packages, account, URL, how it runs, when it is ready.
for part in ports home tls process postgres redis rabbitmq s3; do
	# shellcheck source=/dev/null
	source "$root/scripts/services.d/$part.sh"
done

# foreign SERVICE: true when its URL names a service that is not ours.
foreign() {
	local name url
	name=$("$1_url_name")
	url=${!name:-}
	[[ -n $url && ! $url =~ 127\.0\.0\.1:$("$1_port")([/\&]|$) ]]
}

start() {
	local began=$EPOCHREALTIME
	if running "$1"; then
		say "$1 is running on 127.0.0.1:$("$1_port")"
		return
	fi
	make_home "$1"
	take_tls_files "$1"
	launch "$1"
	await_ready "$1"
	say "$1 is ready on 127.0.0.1:$("$1_port") after $(((${EPOCHREALTIME/./} - ${began/./}) / 1000)) ms"
}

stop() {
	running "$1" || return 0
	signal_and_wait "$1" "$("$1_stop_signal")"
	say "$1 has stopped"
}

restart() { stop "$1" && start "$1"; }

kill_hard() {
	running "$1" || die "$1 is not running"
	signal_and_wait "$1" KILL
	say "$1 was killed"
}

destroy() {
	stop "$1"
	remove_home "$1"
}

status() {
	if running "$1"; then
		echo "$1 running 127.0.0.1:$("$1_port") pid $(<"$LOCAL_DIR/$1/pid") log $LOCAL_DIR/$1/log"
	else
		echo "$1 stopped"
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
	"$root/scripts/install.sh" "${packages[@]}" ||
		die "run the system with 'docker compose up', or name services by DATABASE_URL, REDIS_URL, RABBITMQ_URL"
}

usage() { sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}" >&2 && exit 2; }

command=${1:-}
[[ -n $command ]] && shift
if [[ $command == rabbitmqctl ]]; then
	load_ports
	rabbitmq_ctl "$@"
fi
all=("$@")
if [[ $# -eq 0 ]]; then
	all=(postgres redis rabbitmq)
	[[ ! $command =~ ^(stop|destroy)$ ]] || all+=(s3)
fi
for service in "${all[@]}"; do
	[[ $service =~ ^(postgres|redis|rabbitmq|s3)$ ]] || usage
done
mkdir -p "$LOCAL_DIR"
load_ports
ours=()
for service in "${all[@]}"; do
	drop_stale_link "$service"
	if ! foreign "$service"; then
		ours+=("$service")
	elif [[ $command == kill || $command == restart || $command == destroy ]]; then
		die "$("${service}_url_name") names a $service that was not started here"
	fi
done

case $command in
start | restart)
	install_missing "${ours[@]}"
	settle_ports "${ours[@]}"
	each "$command" "${ours[@]}"
	;;
stop | destroy) each "$command" "${ours[@]}" ;;
kill) each kill_hard "${ours[@]}" ;;
status)
	failed=0
	for service in "${ours[@]}"; do status "$service" || failed=1; done
	exit "$failed"
	;;
env) for service in "${all[@]}"; do env_line "$service"; done ;;
*) usage ;;
esac
