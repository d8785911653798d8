#!/usr/bin/env bash
# Usage: scripts/vulnerabilities.sh
#
# Runs govulncheck for each module, and fails if its programs can reach a known vulnerability. It needs https://vuln.go.dev,
# so it is not part of check.sh, which runs without a network: CI runs it on every change and every week.
set -euo pipefail

readonly version=v1.8.0

cd "$(dirname "${BASH_SOURCE[0]}")/.."
LOCAL_DIR=${LOCAL_DIR:-.local}
[[ $LOCAL_DIR == /* ]] || LOCAL_DIR=$PWD/$LOCAL_DIR
checker=$LOCAL_DIR/bin/govulncheck
if [[ $(go version -m "$checker" 2>/dev/null) != *$'\tgolang.org/x/vuln\t'"$version"$'\t'* ]]; then
	GOBIN=$LOCAL_DIR/bin GOFLAGS='' go install "golang.org/x/vuln/cmd/govulncheck@$version"
fi
mapfile -t modules < <(go list -m -f '{{.Dir}}')
failed=0
for module in "${modules[@]}"; do
	echo "${module##*/}:"
	"$checker" -C "$module" ./... || failed=1
done
exit "$failed"
