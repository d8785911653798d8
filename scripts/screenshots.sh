#!/usr/bin/env bash
# Usage: scripts/screenshots.sh      while scripts/dev.sh runs
#
# Writes the pictures of README.md to scripts/screenshots/: sends some emails through the running system, one of which SES
# throttles twice, and takes screenshots of the simulator's inbox, of the timeline in a terminal and of asynqmon.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
LOCAL_DIR=${LOCAL_DIR:-.local}
[[ $LOCAL_DIR == /* ]] || LOCAL_DIR=$PWD/$LOCAL_DIR
readonly out=$PWD/scripts/screenshots

die() { echo "screenshots: $*" >&2; exit 1; }

[[ -f $LOCAL_DIR/dev.env ]] || die "start ./scripts/dev.sh first"
# shellcheck source=/dev/null
source "$LOCAL_DIR/dev.env"
browser=$(command -v chromium chromium-browser google-chrome | head -n 1) || true
if [[ -z $browser ]]; then
	./scripts/install.sh chromium
	browser=chromium
fi
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT

ctl() { "$LOCAL_DIR/bin/gatewayctl" "$@"; }

# send TO EXTERNAL_ID SUBJECT [ARGUMENTS...]: prints the email's id.
send() {
	ctl email send --json --to "$1" --external-id "$2" --subject "$3" --html "<p>$3</p>" "${@:4}" |
		sed -nE 's/.*"outboxId": *"([^"]+)".*/\1/p'
}

# await_status ID STATUS: for at most a minute.
await_status() {
	local deadline=$((SECONDS + 60))
	until ctl email show --as tenant --json "$1" | grep -qE "\"status\": *\"$2\""; do
		((SECONDS < deadline)) || die "email $1 is not $2 after a minute"
		sleep 0.2
	done
}

# shoot FILE SIZE URL
shoot() {
	"$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
		--disable-component-update --disable-sync --hide-scrollbars --user-data-dir="$profile" --virtual-time-budget=10000 \
		--window-size="$2" --screenshot="$out/$1" "$3" >"$profile/log" 2>&1 || { cat "$profile/log" >&2 && die "no $1"; }
}

# escape makes text of HTML's special characters.
escape() { sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g'; }

mkdir -p "$out"
send ana@cliente.example CUST-17 'Recibo do pedido 1041' >/dev/null
send joao@cliente.example CUST-23 'Sua senha foi alterada' --priority 1 >/dev/null
throttled=$(send maria+sim-throttle-x2@cliente.example CUST-42 'Sua fatura de novembro')
await_status "$throttled" RETRY_SCHEDULED
# The password is base64: three of its characters have a meaning in a URL.
password=${MONITORING_PASSWORD//\//%2F}
password=${password//+/%2B}
password=${password//=/%3D}
shoot asynqmon.png 1200,800 "http://$MONITORING_USER:$password@${MONITORING_URL#http://}"
await_status "$throttled" SENT
shoot inbox.png 1200,420 "$INBOX_URL"
{
	echo '<!doctype html><meta charset="utf-8"><body style="margin:0;background:#1e1e1e"><pre style="margin:16px;color:#ddd;font:14px monospace">'
	echo "\$ gatewayctl email show $throttled"
	COLUMNS=130 ctl email show --as tenant "$throttled" | cut -c -130 | escape
	echo '</pre>'
} >"$profile/timeline.html"
shoot timeline.png 1160,560 "file://$profile/timeline.html"
