#!/usr/bin/env bash
# Usage: scripts/test-clusters.sh [go test arguments]      e.g. scripts/test-clusters.sh -run Sentinel
#
# Runs the tests that need servers on several nodes, and prints the recovery times that they measure. They run
# sequentially because each one measures times.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $* == *-run* ]] || set -- -run 'TestCluster_' "$@"
# As root, the tests cut programs off the network in a network namespace.
((EUID)) || command -v ip >/dev/null || ./scripts/install.sh iproute2
CLUSTERS=1 exec ./scripts/test.sh ./scripts/e2e/ -v -parallel 1 -timeout 40m "$@"
