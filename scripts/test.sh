#!/usr/bin/env bash
# Usage: scripts/test.sh [go test arguments]      e.g. scripts/test.sh ./worker/internal/pipeline/ -run Retry
#
# Runs every test of every module, or those named, with the race detector and real services of their own (not dev.sh's)
# under $LOCAL_DIR/test. KEEP_SERVICES=1 leaves the services running. Ends with go's own output and exit code.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
LOCAL_DIR=${LOCAL_DIR:-.local}
[[ $LOCAL_DIR == /* ]] || LOCAL_DIR=$PWD/$LOCAL_DIR
export LOCAL_DIR=$LOCAL_DIR/test

names_a_package() {
	local argument
	for argument in "$@"; do
		[[ ! $argument =~ ^(work$|all$|\.|/|email-gateway) ]] || return 0
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
readonly services=(postgres redis rabbitmq s3)
./scripts/services.sh start "${services[@]}" 8>&-
urls=$(./scripts/services.sh env "${services[@]}")
eval "$urls"

# The packages that take minutes come first, or the last of them would run alone at the end.
packages=(./scripts/cmd/... ./scripts/e2e/ ./shared/store/ work)
! names_a_package "$@" || packages=()
# Most tests wait for something: six at a time fill two cores better than two.
CGO_ENABLED=1 go test -race -count=1 -timeout 25m -p 2 -parallel 6 "$@" "${packages[@]}" 8>&-
