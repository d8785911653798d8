#!/usr/bin/env bash
# Usage: scripts/install.sh PACKAGE...
#
# Installs packages of the distribution (Debian, Ubuntu) without starting or enabling the servers in them.
set -euo pipefail

readonly policy=/usr/sbin/policy-rc.d saved=/usr/sbin/policy-rc.d.before-email-gateway

as_root() { if ((EUID)); then sudo "$@"; else "$@"; fi; }

# While policy-rc.d returns 101 (do nothing), no package starts its server. An existing policy of the machine is set aside.
forbid_starting() {
	if [[ -e $policy ]] && ! grep -q email-gateway "$policy"; then as_root mv "$policy" "$saved"; fi
	printf '#!/bin/sh\n# email-gateway: only while its packages are being installed\nexit 101\n' | as_root tee "$policy"
	as_root chmod 755 "$policy"
}

enabled_units() { find /etc/systemd/system -type l -path '*.wants/*' -printf '%f\n' 2>/dev/null | sort -u; }

finish() {
	local status=$?
	if [[ -e $saved ]]; then as_root mv "$saved" "$policy"; else as_root rm -f "$policy"; fi
	if ((status)); then
		tail -n 20 "$log" >&3
		echo "install: could not install ${packages[*]}" >&3
	fi
	rm -f "$log"
}

packages=("$@")
[[ $# -gt 0 ]] || { sed -n '2s/^# //p' "$0" >&2 && exit 2; }
if ! command -v apt-get >/dev/null; then
	echo "install: $* missing, and this system has no apt-get to install from" >&2
	exit 1
fi

echo "installing $*" >&2
log=$(mktemp)
exec 3>&2 >"$log" 2>&1
trap finish EXIT
units_before=$(enabled_units)
forbid_starting
as_root apt-get update
as_root env DEBIAN_FRONTEND=noninteractive \
	apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "${packages[@]}"
# The servers must not start at the next boot either.
mapfile -t new_units < <(comm -13 <(echo "$units_before") <(enabled_units))
[[ ${#new_units[@]} -eq 0 ]] || ! command -v systemctl || as_root systemctl disable "${new_units[@]}"
