#!/usr/bin/env bash
# Usage: scripts/test.sh [--ci] [--long] [go test arguments]      e.g. scripts/test.sh ./worker/internal/pipeline/ -run TestBreaker
#
# Runs the tests of every module but those of long-tests.txt, or with --long only those, two packages at a time, and then
# some system tests with the race detector in the programs too. With packages as arguments it runs all their tests, and
# with -run all those that match. All test binaries have the race detector and use separate real services (not dev.sh's) under $LOCAL_DIR/test. KEEP_SERVICES=1 leaves the services running. The output and
# the exit code are those of go test. With --ci, which .ci/run passes to both runs, tests that fail run once more at the end, alone,
# and only those that fail again count (see scripts/cmd/rerun); the system tests that --long runs with the race detector in the
# programs are left out of the run without --long, whose other system tests still run the released programs.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
LOCAL_DIR=${LOCAL_DIR:-.local}
[[ $LOCAL_DIR == /* ]] || LOCAL_DIR=$PWD/$LOCAL_DIR
export LOCAL_DIR=$LOCAL_DIR/test

long='' ci=''
while [[ ${1:-} == --long || ${1:-} == --ci ]]; do
	if [[ $1 == --long ]]; then long=yes; else ci=yes; fi
	shift
done

is_package() { [[ $1 =~ ^(work$|all$|\.|/|email-gateway) ]]; }

names_a_package() {
	local argument
	for argument in "$@"; do
		! is_package "$argument" || return 0
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

# Data of tests need not survive a power cut: they are kept in memory where there are 8 GiB for it. There a database is created
# and dropped three times as fast. A noexec file system cannot hold the programs that tests build.
use_memory() {
	local memory=/dev/shm free probe
	[[ -w $memory ]] || return 0
	free=$(df --output=avail --block-size=1G "$memory" | tail -n 1)
	((free >= 8)) || return 0
	probe=$(mktemp "$memory/email-gateway-XXXXXX")
	printf '#!/bin/sh\n' >"$probe" && chmod +x "$probe"
	if "$probe" 2>/dev/null; then
		export TMPDIR=$memory
		base=$memory
	fi
	rm "$probe"
}

# The last run that uses the services stops them: every run holds a shared lock, which only the last one can make exclusive.
# It removes data in memory, unless a test failed: then its database is still wanted.
finish() {
	local status=$? command=stop
	[[ -z ${KEEP_SERVICES:-} ]] || return 0
	flock --nonblock 8 || return 0
	[[ -z $base || $status != 0 ]] || command=destroy
	./scripts/services.sh "$command" 8>&- 2>"$LOCAL_DIR/stop.log" || cat "$LOCAL_DIR/stop.log" >&2
}

# With the paths of this checkout in them, compiled packages could not be reused by another one.
export GOFLAGS="-trimpath ${GOFLAGS:-}"
base='' # of the services' data
use_memory
mkdir -p "$LOCAL_DIR"
exec 8>"$LOCAL_DIR/in-use"
flock --shared 8
trap finish EXIT

command -v gcc >/dev/null || ./scripts/install.sh gcc libc6-dev # the race detector needs a C compiler
command -v curl >/dev/null || ./scripts/install.sh curl # for README.md's commands
# The unsubscribe page is tested in a browser.
command -v chromium chromium-browser google-chrome >/dev/null || ./scripts/install.sh chromium
PATH=$PATH:/usr/sbin command -v haproxy >/dev/null || ./scripts/install.sh haproxy # for restarts of apis behind it
readonly services=(postgres redis rabbitmq s3 sqs sesv2)
SERVICES_BASE=$base ./scripts/services.sh start "${services[@]}" 8>&-
urls=$(./scripts/services.sh env "${services[@]}")
eval "$urls"

# A binary with the race detector waits a second when it exits.
export GORACE=${GORACE:-atexit_sleep_ms=50}

# Most tests mostly wait: more than two at a time use two cores better, also more than two packages. check.sh runs go vet's
# analyzers, and stack traces need no DWARF: without both, the tests are built in two thirds of the time.
run() {
	local flags=(-race -count=1 -vet=off -ldflags=-w -timeout 45m) tested=() argument
	if [[ ! $ci ]]; then
		CGO_ENABLED=1 go test "${flags[@]}" "$@" 8>&-
		return
	fi
	for argument in "$@"; do
		if is_package "$argument"; then tested+=("$argument"); else flags+=("$argument"); fi
	done
	CGO_ENABLED=1 "$LOCAL_DIR/rerun" "${flags[@]}" -- "${tested[@]}" 8>&-
}
[[ ! $ci ]] || go build -o "$LOCAL_DIR/rerun" ./scripts/cmd/rerun

# Together they run most of what the programs do.
readonly raced_tests='^(TestJourney|TestMailing|TestOutcomes|TestFeedback|TestStop_LogsNoError|TestAttachments)$'
long_tests=$(awk '!/^#/ {printf "%s^%s$", separator, $2; separator = "|"}' scripts/long-tests.txt)
packages=()
if [[ $long ]]; then
	names_a_package "$@" || mapfile -t packages < <(awk '!/^#/ && !seen[$1]++ {print $1}' scripts/long-tests.txt)
	status=0
	run -p 2 -parallel 8 -run "$long_tests" "$@" "${packages[@]}" || status=$?
	names_a_package "$@" || E2E_RACE=yes run -parallel 8 -run "$raced_tests" "$@" ./scripts/e2e/ || status=$?
	exit "$status"
elif names_a_package "$@"; then
	run -p 3 -parallel 6 "$@"
else
	# The two that take minutes run first. The system tests start many programs, so they run last and alone: otherwise other
	# tests would miss their limits in seconds.
	mapfile -t packages < <(go list ./shared/store/ ./api/internal/httpapi/ work | awk '!/scripts\/e2e$/ && !seen[$1]++')
	status=0 skip=(-skip "$long_tests") skip_system=(-skip "$long_tests${ci:+|$raced_tests}")
	! names_tests "$@" || skip=() skip_system=()
	run -p 3 -parallel 6 "${skip[@]}" "$@" "${packages[@]}" || status=$?
	run -parallel 8 "${skip_system[@]}" "$@" ./scripts/e2e/ || status=$?
	exit "$status"
fi
