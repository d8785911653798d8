#!/usr/bin/env bash
# Usage: scripts/dev.sh [--once] [--keep]
#
# Starts the whole system on this machine, sends one demo email through it, prints how to use it and runs until Ctrl-C,
# which stops all of it. With --once it exits after the demo email; exit code 0 means that it was SENT. When a program
# exits, everything is stopped; with --keep the others keep running, to try out the system without it. DATABASE_URL,
# REDIS_URL, RABBITMQ_URL, STORAGE_URL and SES_ENDPOINT select real services instead of private ones; API_ADDR,
# METRICS_ADDR, DISPATCHER_ADDR, WORKER_ADDR and SES_SIM_ADDR the listen addresses. .env.example has them all.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
LOCAL_DIR=${LOCAL_DIR:-.local}
[[ $LOCAL_DIR == /* ]] || LOCAL_DIR=$PWD/$LOCAL_DIR
export LOCAL_DIR DEV_DIR=$LOCAL_DIR
readonly secrets=$LOCAL_DIR/secrets.env

say() { printf '%s\n' "$*" >&2; }
die() { say "dev: $*"; exit 1; }
# shellcheck source=scripts/dev.d/programs.sh
source scripts/dev.d/programs.sh
# shellcheck source=scripts/dev.d/key.sh
source scripts/dev.d/key.sh

once='' keep=''
while [[ $# -gt 0 ]]; do
	case $1 in
	--once) once=yes ;;
	--keep) keep=yes ;;
	*) sed -n '2s/^# //p' "$0" >&2 && exit 2 ;;
	esac
	shift
done

export API_ADDR=${API_ADDR:-127.0.0.1:8080} DISPATCHER_ADDR=${DISPATCHER_ADDR:-127.0.0.1:9091}
export METRICS_ADDR=${METRICS_ADDR:-127.0.0.1:9094}
export WORKER_ADDR=${WORKER_ADDR:-127.0.0.1:9092} SES_SIM_ADDR=${SES_SIM_ADDR:-127.0.0.1:8005}
export AWS_REGION=${AWS_REGION:-us-east-1} MONITORING_USER=${MONITORING_USER:-admin}
API_URL=http://$(local_address "$API_ADDR")
export API_URL PUBLIC_URL=${PUBLIC_URL:-$API_URL} STORAGE_URL=${STORAGE_URL:-file://$LOCAL_DIR/storage}
export WEBHOOK_ALLOW_PRIVATE=${WEBHOOK_ALLOW_PRIVATE:-true} # endpoints on this machine
export MX_RESOLVER=${MX_RESOLVER-off} # demo addresses end in .example, which has no mail servers

mkdir -p "$bin" "$log"
exec 8>"$LOCAL_DIR/dev.lock" # no program may inherit it: it would keep the lock
flock --nonblock 8 || die "dev.sh is already running under $LOCAL_DIR"

finish() {
	local status=$?
	trap '' INT TERM
	say "stopping (logs stay in $log)"
	[[ -z $building ]] || kill "$building" 2>/dev/null || true
	wait "${services:-}" 2>/dev/null || true
	end api dispatcher worker
	end ses-sim
	./scripts/services.sh stop 8>&-
	exit "$status"
}

# secret NAME BYTES [PREFIX]: uses the environment, else generates it once and stores it, so that a restart can still
# decrypt.
secret() {
	[[ -z ${!1:-} ]] || return 0
	if ! grep -qs "^$1=" "$secrets"; then
		(umask 077 && echo "$1=${3:-}$(head -c "$2" /dev/urandom | base64 -w 0)" >>"$secrets")
	fi
	export "$(grep "^$1=" "$secrets")"
}

write_env() {
	local name
	umask 077 # it contains a key and a password
	for name in API_URL API_KEY COMPANY_ID INBOX_URL MONITORING_URL MONITORING_USER MONITORING_PASSWORD \
		DATABASE_URL REDIS_URL RABBITMQ_URL STORAGE_URL SES_ENDPOINT DEV_DIR; do
		echo "export $name='${!name}'"
	done >"$LOCAL_DIR/dev.env"
}

end_leftovers api dispatcher worker ses-sim
require_free API_ADDR METRICS_ADDR DISPATCHER_ADDR WORKER_ADDR
[[ -n ${SES_ENDPOINT:-} ]] || require_free SES_SIM_ADDR
trap finish EXIT
trap 'exit 0' INT TERM
secret CPF_CNPJ_KEYS 32 local:
secret CPF_CNPJ_HASH_KEY 32
secret MONITORING_PASSWORD 12
secret UNSUBSCRIBE_KEY 32

say "starting the services (logs in $LOCAL_DIR), and building the programs meanwhile"
./scripts/services.sh start 8>&- &
services=$!
build ./schema/cmd/migrate ./api/cmd/... ./worker/cmd/... ./scripts/cmd/ses-sim ./scripts/cmd/demo
wait "$services" || die "the services did not start"
say "migrating the database"
urls=$(./scripts/services.sh env)
eval "$urls"

"$bin/migrate" up >"$log/migrate.log" 2>&1 || { cat "$log/migrate.log" >&2 && die "migrate failed"; }
if [[ -z ${SES_ENDPOINT:-} ]]; then
	# The simulator reports the emails' outcomes to the api, which trusts its signing certificate.
	SES_ENDPOINT=http://$(local_address "$SES_SIM_ADDR")
	export SES_EVENTS_TOPICS=arn:aws:sns:us-east-1:123456789012:ses-events SES_EVENTS_TRUSTED_URL=$SES_ENDPOINT
	export SES_SIM_EVENTS_URL=$API_URL/v1/ses/events SES_SIM_EVENTS_TOPIC=$SES_EVENTS_TOPICS SES_SIM_EVENTS_BASE_URL=$SES_ENDPOINT
	launch ses-sim
	await ses-sim "$SES_SIM_ADDR" /livez
fi
export SES_ENDPOINT
say "starting the programs"
launch api
launch dispatcher
launch worker
await api "$API_ADDR" /health
await dispatcher "$DISPATCHER_ADDR" /readyz
await worker "$WORKER_ADDR" /readyz

INBOX_URL=$SES_ENDPOINT
MONITORING_URL=http://$(local_address "$WORKER_ADDR")/monitoring
demo_key
write_env
say "sending a demo email through all of it"
"$bin/demo"
[[ -z $once ]] || exit 0

cat <<READY

ready

  api         $API_URL            key $API_KEY
  inbox       $INBOX_URL
  monitoring  $MONITORING_URL     $MONITORING_USER / $MONITORING_PASSWORD
  logs        $log
  variables   source $LOCAL_DIR/dev.env
  operate     $bin/gatewayctl doctor     (with these variables)

  curl -i $API_URL/v1/email/send -H 'Authorization: Bearer $API_KEY' -H 'Content-Type: application/json' \\
    -d '{"to":"maria@cliente.example","subject":"Olá, Maria","html":"<p>Tudo pronto.</p>","recipient":{"externalId":"42","email":"maria@cliente.example"}}'

Ctrl-C stops everything.
READY
while ((${#pid_of[@]})); do
	await_end
	[[ -n $keep ]] || break
	say "dev: the others continue (--keep): ${!pid_of[*]}; Ctrl-C stops them"
done
false
