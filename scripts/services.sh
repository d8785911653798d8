#!/usr/bin/env bash
# Usage: scripts/services.sh start|stop|restart|kill|status|env|destroy [postgres] [redis] [rabbitmq] [s3] [sqs] [sesv2]
#        scripts/services.sh rabbitmqctl ARGUMENTS...      e.g. list_queues name type messages arguments
#
# Private instances of the services under $LOCAL_DIR (default .local), or with links from there under $SERVICES_BASE, listening on
# loopback only. Without a name the command applies to postgres, redis and rabbitmq; stop and destroy also stop s3, sqs and sesv2,
# which only tests need. POSTGRES_PORT, REDIS_PORT, RABBITMQ_PORT, S3_PORT, SQS_PORT and SESV2_PORT set their ports; a port that is
# not set is chosen once and remembered. A DATABASE_URL, REDIS_URL, RABBITMQ_URL, S3_URL, SQS_URL or SESV2_URL of another server is
# shown by env, and that server is otherwise not touched. TLS_DIR, a folder with ca.pem, server.pem and server.key, makes postgres,
# redis and rabbitmq use TLS. kill is SIGKILL, for crash tests; stop keeps the data, destroy removes it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LOCAL_DIR=${LOCAL_DIR:-.local}
[[ $LOCAL_DIR == /* ]] || LOCAL_DIR=$root/$LOCAL_DIR
readonly root LOCAL_DIR

say() { printf '%s\n' "$*" >&2; }
die() { say "services: $*"; exit 1; }

# Each of these files defines the same functions for its service: packages, account, URL, start, readiness.
for part in ports home tls process lifecycle postgres redis rabbitmq s3 sqs sesv2; do
	# shellcheck source=/dev/null
	source "$root/scripts/services.d/$part.sh"
done

usage() { sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}" >&2 && exit 2; }

command=${1:-}
[[ -n $command ]] && shift
if [[ $command == rabbitmqctl ]]; then
	load_ports rabbitmq
	rabbitmq_ctl "$@"
fi
all=("$@")
if [[ $# -eq 0 ]]; then
	all=(postgres redis rabbitmq)
	[[ ! $command =~ ^(stop|destroy)$ ]] || all+=(s3 sqs sesv2)
fi
for service in "${all[@]}"; do
	[[ $service =~ ^(postgres|redis|rabbitmq|s3|sqs|sesv2)$ ]] || usage
done
mkdir -p "$LOCAL_DIR"
load_ports "${all[@]}"
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
