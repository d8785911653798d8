#!/usr/bin/env bash
# Usage: scripts/compose-smoke.sh [--no-build]
#
# Starts docker-compose.yml on Docker, or on Podman with Docker Compose as its compose provider, with its own project name,
# ports and volumes: sends an email and a mailing, stops the programs in the middle of it, restarts everything but the
# simulator, and compares the accepted emails with the simulator's ledger, which must have each email once. Everything is
# removed at the end. --no-build uses existing images of this project (docker compose --project-name email-gateway-smoke
# build), and keeps them.
set -euo pipefail

readonly rows=5000 timeout=180 # timeout of each wait in seconds; the first start creates the database
readonly project=email-gateway-smoke

cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "compose-smoke: $*" >&2; }
die() { say "$*" && exit 1; }

# find_engine sets engine, which inspects containers, and compose.
find_engine() {
	if docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
		engine=docker compose=(docker compose)
	elif podman compose version 2>/dev/null | grep -q 'Docker Compose' && podman info >/dev/null 2>&1; then
		engine=podman compose=(podman compose)
	else
		die "no container engine responds: start Docker (with Compose 2.24 or newer) or Podman (with Docker Compose as its compose provider), and run this again"
	fi
}

finish() {
	local status=$?
	trap - EXIT
	if ((status)); then
		run ps --all >&2 || true
		run logs --tail 40 >&2 || true
	fi
	[[ -z ${started:-} ]] || remove >/dev/null 2>&1 || say "could not remove everything of project $project"
	rm -rf "$copy"
	exit "$status"
}

# remove removes the containers, the volumes, and the images built by this script.
remove() {
	local images=()
	[[ $build == --no-build ]] || images=(--rmi local)
	run --profile tools down --volumes --timeout 10 "${images[@]}" || return
	# This image has its own name, so Compose may keep it.
	[[ $build == --no-build ]] || ! "$engine" image inspect "$project-api" || "$engine" image rm "$project-api"
}

run() { "${compose[@]}" --project-name "$project" --project-directory "$copy" --file "$copy/docker-compose.yml" "$@"; }

# ctl COMMAND...: gatewayctl in a container, as operators and tenants run it.
ctl() { run run --rm -T -e API_KEY="${api_key:-}" gatewayctl "$@"; }

# address SERVICE PORT: the published address.
address() { run port "$1" "$2" | tail -n 1; }

# await WHAT COMMAND...: waits until it succeeds, for $limit seconds at most.
await() {
	local what=$1 limit=${limit:-$timeout} deadline
	deadline=$((SECONDS + limit))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < deadline)) || die "$what: not within $limit s"
		sleep 1
	done
}

ready() { curl -fsS "http://$(address api 8080)/readyz" && curl -fsS "http://$(address worker 9092)/readyz"; }

# count NAME: a number of the ledger's summary.
count() { curl -fsS "http://$(address ses-sim 8005)/sim/ledger/summary" | grep -oE "\"$1\": ?[0-9]+" | grep -oE '[0-9]+$'; }

accepted_at_least() { (($(count accepted) >= $1)); }

# send SUBJECT: sends an email through the published port and prints its id.
send() {
	curl -fsS "http://$(address api 8080)/v1/email/send" -H "Authorization: Bearer $api_key" -H 'Content-Type: application/json' \
		-d "{\"to\": \"maria@cliente.example\", \"subject\": \"$1\", \"html\": \"<p>Olá</p>\", \"recipient\": {\"externalId\": \"C-1\", \"email\": \"maria@cliente.example\"}}" |
		grep -oE '"outboxId": ?"[0-9a-f-]{36}"' | grep -oE '[0-9a-f-]{36}'
}

is_sent() { ctl email show --json "$1" | grep -qE '"status": ?"SENT"'; }
is_completed() { ctl mailing show --json "$1" | grep -qE '"status": ?"COMPLETED"'; }

# database_roles: the roles with which programs are connected to Postgres. Its healthcheck connects too.
database_roles() {
	run exec -T postgres psql --username=gateway --dbname=gateway --no-psqlrc --tuples-only --no-align --command="SELECT DISTINCT usename FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name <> 'pg_isready' ORDER BY 1"
}

# drained NAME: the program exited before the end of its grace period, and was not killed.
drained() {
	local id code
	for id in $(run ps --all --quiet "$1"); do
		code=$("$engine" inspect --format '{{.State.ExitCode}}' "$id")
		((code == 0)) || die "$1 exited with $code when it was stopped"
	done
}

build=--build
[[ ${1:-} != --no-build ]] || build=--no-build
copy=$(mktemp -d)
find_engine
trap finish EXIT
trap 'exit 1' INT TERM

# Use the checkout without .env: a developer's settings must not lead to real services. Settings in the environment take
# precedence over compose's defaults, so they are removed too.
git ls-files -z --cached --others --exclude-standard ':!.env' | tar --create --null --files-from - --ignore-failed-read | tar --extract --directory "$copy"
mapfile -t settings < <(grep -oE '[$][{][A-Z0-9_]+' docker-compose.yml | cut -c 3- | grep -v '^USER$' | sort -u)
unset "${settings[@]}"
export API_PORT=0 WORKER_PORT=0 SES_SIM_PORT=0

say "starting $project on $engine"
started=1
run up --detach "$build"
await "api and worker are ready" ready

say "a company, a key, an email"
ctl company create --name Demo --default-from demo@demo.example >/dev/null
api_key=$(ctl key create --json --company Demo --scopes emails:send,emails:read,mailings:write,mailings:read | grep -oE 'gw_[A-Za-z0-9_-]+' | head -n 1)
[[ -n $api_key ]] || die "no key was printed"
await "the email is SENT" is_sent "$(send before)"
await "the doctor finds no failure" ctl doctor # RabbitMQ is up last
doctor=$(ctl doctor) || die "the doctor finds a failure: $doctor"
grep -q '^ok *api ' <<<"$doctor" || die "the doctor did not reach the api: $doctor"
! grep -q superuser <<<"$doctor" || die "gatewayctl connects as a superuser: $doctor"
roles=$(database_roles)
for role in gateway_{api,dispatcher,worker}; do grep -qx "$role" <<<"$roles" || die "no program is connected as $role, but as: $roles"; done
! grep -qx gateway <<<"$roles" || die "a program is connected as gateway, a superuser"

say "a mailing of $rows rows, and a stop in the middle of it"
curl -fsS -X PUT "http://$(address ses-sim 8005)/sim/settings" -d '{"latencyMs": 1000}' >/dev/null
mailing=$({
	echo email,nome
	for ((i = 1; i <= rows; i++)); do echo "cliente$i@cliente.example,Cliente $i"; done
} | ctl mailing create --file - --name clientes.csv --subject 'Olá, {{nome}}' --html '<p>{{nome}}: <a href="{{unsubscribe_url}}">sair</a></p>' --json |
	grep -oE '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' | head -n 1)
await "the mailing has begun" accepted_at_least 200
run stop api dispatcher worker
for name in api dispatcher worker; do drained "$name"; done
(($(count accepted) < rows)) || die "the mailing had finished before the stop"

say "restarting Postgres, Redis and RabbitMQ, and starting the programs again, several of each"
run restart postgres redis rabbitmq
run up --detach --no-build --scale api=2 --scale dispatcher=2 --scale worker=3
await "api and worker are ready" ready
curl -fsS -X PUT "http://$(address ses-sim 8005)/sim/settings" -d '{"latencyMs": 0}' >/dev/null
limit=600 await "the mailing is COMPLETED" is_completed "$mailing" # a lost job is found within five minutes
await "the second email is SENT" is_sent "$(send after)"

readonly expected=$((rows + 2))
emails=$(count acceptedOutboxIds) requests=$(count accepted) duplicates=$(count duplicateCount)
((emails == expected && requests == expected && duplicates == 0)) ||
	die "$expected emails were accepted; the simulator got $requests requests for $emails emails, $duplicates of them more than once"
say "$expected emails were accepted, and the simulator took each of them once"
