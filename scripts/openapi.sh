#!/usr/bin/env bash
# Usage: scripts/openapi.sh lint | scripts/openapi.sh client go|typescript FOLDER
#
# Processes api/openapi.yaml with common tools. "lint" runs redocly and spectral; "client" builds, in FOLDER, a program that
# sends one email with the client that oapi-codegen or openapi-typescript generates with its default flags, and prints the
# command that runs it. The tools are installed under .local in the versions of scripts/openapi/package.json and of this
# file.
set -euo pipefail

readonly codegen_version=v2.8.2

cd "$(dirname "${BASH_SOURCE[0]}")/.."
LOCAL_DIR=${LOCAL_DIR:-.local}
[[ $LOCAL_DIR == /* ]] || LOCAL_DIR=$PWD/$LOCAL_DIR
LOCAL_DIR=${LOCAL_DIR%/test} # tests and checks share the tools
readonly tools=$LOCAL_DIR/openapi document=$PWD/api/openapi.yaml own=$PWD/scripts/openapi
export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true NO_COLOR=1
mkdir -p "$tools" "$LOCAL_DIR/bin"
exec 9>"$tools.lock"
flock 9 # one installs, others wait

node_tools() {
	if ! command -v node >/dev/null || ! command -v npm >/dev/null; then ./scripts/install.sh nodejs npm >&2; fi
	node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || a === 22 && b >= 12 || a === 20 && b >= 19 ? 0 : 1)' ||
		{ echo "openapi: redocly needs Node 22.12 or later, or 20.19; this is $(node --version)" >&2 && exit 1; }
	if ! cmp -s "$own/package-lock.json" "$tools/installed.json"; then
		cp "$own/package.json" "$own/package-lock.json" "$tools/"
		npm ci --prefix "$tools" --ignore-scripts --no-audit --no-fund --loglevel=error >&2
		cp "$own/package-lock.json" "$tools/installed.json"
	fi
}

lint() {
	node_tools
	"$tools/node_modules/.bin/redocly" lint "$document" --config "$own/redocly.yaml" --max-problems 50
	"$tools/node_modules/.bin/spectral" lint --fail-severity=hint --ruleset "$own/spectral.yaml" "$document"
}

client_typescript() {
	node_tools
	"$tools/node_modules/.bin/openapi-typescript" "$document" --output "$1/gateway.ts" >&2
	cp "$own"/client/typescript/* "$1/"
	ln -sfn "$tools/node_modules" "$1/node_modules"
	echo '{"type": "module"}' >"$1/package.json"
	"$tools/node_modules/.bin/tsc" --project "$1" >&2
	echo "node $1/send.js"
}

client_go() {
	local codegen=$LOCAL_DIR/bin/oapi-codegen
	if [[ $(go version -m "$codegen" 2>/dev/null) != *$'\tgithub.com/oapi-codegen/oapi-codegen/v2\t'"$codegen_version"$'\t'* ]]; then
		GOBIN=$LOCAL_DIR/bin GOFLAGS='' go install "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@$codegen_version"
	fi
	cp "$own"/client/go/* "$1/"
	for file in "$1"/*.txt; do mv "$file" "${file%.txt}"; done
	mkdir -p "$1/gateway"
	"$codegen" -package gateway "$document" >"$1/gateway/gateway.gen.go"
	(cd "$1" && GOWORK=off GOFLAGS=-mod=readonly go build -o send .)
	echo "$1/send"
}

case ${1:-} in
lint) lint ;;
client) "client_$2" "$(realpath "$3")" ;;
*) sed -n '2s/^# //p' "$0" >&2 && exit 2 ;;
esac
