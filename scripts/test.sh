#!/usr/bin/env bash
# Usage: scripts/test.sh [--long] [go test arguments]      e.g. scripts/test.sh ./worker/internal/pipeline/ -run Retry
#
# Runs the tests of every module but those of long-tests.txt, or with --long only those, one package at a time. Where packages
# are named, all their tests are run, and with -run all those that match. All run with the race detector and real services of
# their own (not dev.sh's) under $LOCAL_DIR/test. KEEP_SERVICES=1 leaves the services running. Ends with go's own output and exit code.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
LOCAL_DIR=${LOCAL_DIR:-.local}
[[ $LOCAL_DIR == /* ]] || LOCAL_DIR=$PWD/$LOCAL_DIR
export LOCAL_DIR=$LOCAL_DIR/test

long=
if [[ ${1:-} == --long ]]; then
	long=yes
	shift
fi

names_a_package() {
	local argument
	for argument in "$@"; do
		[[ ! $argument =~ ^(work$|all$|\.|/|email-gateway) ]] || return 0
	done
	return 1
}

names_tests() {
	local argument
	for argument in "$@"; do
		[[ ! $argument =~ ^--?(test\.)?run(=|$) ]] || return 0
	done
	return 1
}

# The last run that uses the services stops them: every run holds a shared lock, and only the last can make it exclusive.
finish() {
	[[ -z ${KEEP_SERVICES:-} ]] || return 0
	flock --nonblock 8 || return 0
	./scripts/services.sh stop 8>&- 2>"$LOCAL_DIR/stop.log" || cat "$LOCAL_DIR/stop.log" >&2
}

mkdir -p "$LOCAL_DIR"
exec 8>"$LOCAL_DIR/in-use"
flock --shared 8
trap finish EXIT

command -v gcc >/dev/null || ./scripts/install.sh gcc libc6-dev # the race detector is linked by a C compiler
command -v curl >/dev/null || ./scripts/install.sh curl # README.md's commands are run
# The unsubscribe page is looked at in a browser.
command -v chromium chromium-browser google-chrome >/dev/null || ./scripts/install.sh chromium
PATH=$PATH:/usr/sbin command -v haproxy >/dev/null || ./scripts/install.sh haproxy # apis are restarted behind it
readonly services=(postgres redis rabbitmq s3)
./scripts/services.sh start "${services[@]}" 8>&-
urls=$(./scripts/services.sh env "${services[@]}")
eval "$urls"

# Most tests wait for something: more of them at a time fill two cores better than two.
run() { CGO_ENABLED=1 go test -race -count=1 -timeout 45m "$@" 8>&-; }

long_tests=$(awk '!/^#/ {printf "%s^%s$", separator, $2; separator = "|"}' scripts/long-tests.txt)
packages=()
if [[ $long ]]; then
	names_a_package "$@" || mapfile -t packages < <(awk '!/^#/ && !seen[$1]++ {print $1}' scripts/long-tests.txt)
	run -p 1 -parallel 8 -run "$long_tests" "$@" "${packages[@]}"
elif names_a_package "$@"; then
	run -p 2 -parallel 6 "$@"
else
	# The two that take minutes come first. The tests of the whole system start many programs, so they come last and
	# alone: beside them the others would miss what they promise in seconds.
	mapfile -t packages < <(go list ./shared/store/ ./api/internal/httpapi/ work | awk '!/scripts\/e2e$/ && !seen[$1]++')
	status=0 skip=(-skip "$long_tests")
	! names_tests "$@" || skip=()
	run -p 2 -parallel 6 "${skip[@]}" "$@" "${packages[@]}" || status=$?
	run -parallel 6 "${skip[@]}" "$@" ./scripts/e2e/ || status=$?
	exit "$status"
fi
