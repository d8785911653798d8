#!/usr/bin/env bash
# Usage: scripts/check.sh
#
# Every check that needs no running service: format, lint with go vet's analyzers and the import rules, modules, shell scripts,
# openapi.yaml.
# One line per check; all run even when one fails. scripts/test.sh runs the tests.
set -euo pipefail

readonly lint_version=v2.15.0 modules_expected=5

cd "$(dirname "${BASH_SOURCE[0]}")/.."
LOCAL_DIR=${LOCAL_DIR:-.local}
[[ $LOCAL_DIR == /* ]] || LOCAL_DIR=$PWD/$LOCAL_DIR
mkdir -p "$LOCAL_DIR/bin"
export GOFLAGS="-trimpath ${GOFLAGS:-}" # as scripts/test.sh, so that both use the same compiled packages
mapfile -t modules < <(go list -m -f '{{.Dir}}')
failed=()

# check NAME COMMAND...: shows the command's output only when it fails.
check() {
	local name=$1 began=$EPOCHREALTIME output outcome=ok
	shift
	output=$("$@" 2>&1) || outcome=FAIL
	printf '%-4s %-34s %6d ms\n' "$outcome" "$name" "$(((${EPOCHREALTIME/./} - ${began/./}) / 1000))"
	[[ $outcome == ok ]] && return
	failed+=("$name")
	{ grep -v '^go: downloading ' <<<"$output" || true; } | head -n 100 || true # head closes the pipe early
}

# Without this check the loops over modules would succeed if no module were found.
module_count() {
	printf '%s\n' "${modules[@]}"
	((${#modules[@]} == modules_expected))
}

format() {
	local diff
	diff=$(gofmt -d "${modules[@]}")
	echo "$diff"
	[[ -z $diff ]]
}

lint() {
	local linter=$LOCAL_DIR/bin/golangci-lint
	if ! go version -m "$linter" 2>/dev/null | grep -q "golangci-lint/v2.$lint_version"; then
		GOBIN=$LOCAL_DIR/bin go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$lint_version"
	fi
	"$linter" run "${modules[@]/%//...}"
}

# The import rules check each file; this checks the transitive dependencies of the api's programs.
api_dependencies() {
	local all found
	all=$(go list -deps ./api/cmd/...) || return
	found=$(grep -E '/asynq|/go-redis|/amqp091-go|/service/sesv2|^email-gateway/(worker|scripts)' <<<"$all")
	echo "$found"
	[[ -z $found ]]
}

tidy() { go mod tidy -C "$1" -diff; }

# With the same versions in every module, go.work and a module alone build, and test, the same code, from the same cache.
one_version() {
	local module used=()
	for module in "${modules[@]}"; do
		used+=("$(GOWORK=off go list -C "$module" -deps -test -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}' ./...)") || return
	done
	local different
	different=$(printf '%s\n' "${used[@]}" | grep -v '^email-gateway/' | sort -u | awk '$1 == last { print last, version, "and", $2 } { last = $1; version = $2 }')
	[[ -z $different ]] || { echo "$different" && echo "run go work sync, and go mod tidy in each module" && return 1; }
}

# It compiles as go build does, but does not link the programs.
build_alone() { GOWORK=off go list -C "$1" -export -deps ./... >/dev/null; }

# Every test in SECURITY.md exists in the file that is named after it.
security_claims() {
	local claim claims test file missing=0 tests=()
	# shellcheck disable=SC2016 # the backquotes are Markdown's
	mapfile -t claims < <(grep -oE '`Test\w+`|\]\([a-z0-9_/]+_test\.go\)' SECURITY.md)
	((${#claims[@]} > 40)) || return 1
	for claim in "${claims[@]}"; do
		if [[ $claim == '`'* ]]; then
			tests+=("${claim//\`/}")
			continue
		fi
		file=${claim#](}
		file=${file%)}
		for test in "${tests[@]}"; do
			grep -qs "^func $test(" "$file" || { echo "$file has no $test" && missing=1; }
		done
		tests=()
	done
	return "$missing"
}

# A test of another package with a name of long-tests.txt would not be run at all.
long_tests() {
	local line package test file wrong=0 lines
	mapfile -t lines < <(grep -v '^#' scripts/long-tests.txt)
	((${#lines[@]} > 10)) || return 1
	for line in "${lines[@]}"; do
		read -r package test <<<"$line"
		grep -qsE "^func $test\(" "$package"*_test.go || { echo "$package has no $test" && wrong=1; }
		while read -r file; do
			grep -qFx "${file%/*}/ $test" scripts/long-tests.txt || { echo "$file: $test is not listed" && wrong=1; }
		done < <(grep -rlE --include='*_test.go' "^func $test\(" ./api ./worker ./shared ./schema ./scripts)
	done
	return "$wrong"
}

shell_scripts() {
	if ! command -v shellcheck >/dev/null; then
		((EUID == 0)) || { echo "install shellcheck to check the shell scripts" && return 1; }
		./scripts/install.sh shellcheck
	fi
	find scripts .ci -type f \( -name '*.sh' -o -name run \) -exec shellcheck --external-sources {} +
}

# Prints the lines of comments and Markdown, and the names that Go code declares, that contain words of style-words.txt.
style_words() {
	local list=scripts/style-words.txt paths words exceptions found names declared='^func (\([^)]*\) )?\w+|^\s*(type|var|const) \w+|\w+(, \w+)* :='
	field() { sed -nE "s/^$1 +//p" "$list" | sed -E 's/ +# .*//'; }
	mapfile -t paths < <(field path)
	words=$(field word) exceptions=$(field except)
	[[ ${#paths[@]} -gt 0 && -n $words ]] || return 1
	# shellcheck disable=SC2016 # the dollar and the backquotes are awk's and Markdown's
	found=$(git ls-files -z -- "${paths[@]}" | xargs -0 awk '
		FNR == 1 { fenced = 0; kind = FILENAME; sub(/.*[.\/]/, "", kind) }
		kind == "md" && /^ *```/ { fenced = !fenced; next }
		kind == "md" && fenced { next }
		{ text = $0 }
		kind == "go" && !match(text, /(^|[ \t])\/\/ .*/) { next }
		kind == "sql" && !match(text, /(^|[ \t])-- .*/) { next }
		kind != "md" && kind != "go" && kind != "sql" && !match(text, /(^|[ \t])# .*/) { next }
		kind != "md" { text = substr(text, RSTART) }
		{ gsub(/`[^`]*`/, "", text); print FILENAME ":" FNR ": " text }' |
		grep -iwE -f <(echo "$words")) || true
	# Tests of worker declare some of the words.
	names=$(git grep -noE "$declared" -- '*.go' | sed -E 's/([a-z0-9])([A-Z])/\1 \2/g' | grep -iwE -f <(echo "$words")) || true
	[[ -z $names ]] || found+=$'\n'$names
	[[ -z $exceptions ]] || found=$(grep -vE -f <(echo "$exceptions") <<<"$found") || true
	echo "$found"
	[[ -z $found ]]
}

# Prints the comment lines of Go and SQL with more than 130 columns.
comment_width() {
	local found
	found=$(LC_ALL=C.UTF-8 git grep -nE '^\s*(//|--) .{128,}' -- '*.go' '*.sql' '*.tmpl' ':!schema/migrations' ':!schema/schema.sql' |
		grep -v ':-- EXPLAIN EXECUTE ') || true
	echo "$found"
	[[ -z $found ]]
}

# promtool checks the rules and runs their tests.
alert_rules() {
	if ! command -v promtool >/dev/null; then
		((EUID == 0)) || { echo "install prometheus (its promtool) to check the alert rules" && return 1; }
		./scripts/install.sh prometheus
	fi
	# Alert texts need whole numbers: 3 emails, not 3.053.
	local fractions
	# shellcheck disable=SC2016 # the dollar is the template's
	fractions=$(grep -nE '\{\{[^}]*\$value' scripts/observability/prometheus/rules.yml | grep -vE 'printf "%\.0f"|reReplaceAll "\[\.\]\[0-9\]\+" ""') || true
	[[ -z $fractions ]] || { echo "not a whole number: $fractions" && return 1; }
	promtool check rules scripts/observability/prometheus/rules.yml &&
		promtool check config --syntax-only scripts/observability/prometheus/prometheus.yml &&
		promtool test rules scripts/observability/prometheus/rules_test.yml
}

check "five modules" module_count
check gofmt format
check "golangci-lint $lint_version" lint
check "what the api depends on" api_dependencies
check "one version of each module" one_version
for module in "${modules[@]}"; do
	check "go mod tidy: ${module##*/}" tidy "$module"
	check "build without go.work: ${module##*/}" build_alone "$module"
done
check "tests that SECURITY.md names" security_claims
check "long tests" long_tests
check "openapi.yaml: redocly, spectral" ./scripts/openapi.sh lint
check "CONFIGURATION.md" go run ./scripts/cmd/settings -check
check shellcheck shell_scripts
check "style words" style_words
check "width of comments" comment_width
check "alert rules" alert_rules

if ((${#failed[@]})); then
	printf '%d failed:%s\n' "${#failed[@]}" "$(printf ' [%s]' "${failed[@]}")"
	exit 1
fi
