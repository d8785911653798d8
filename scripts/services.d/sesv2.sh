# shellcheck shell=bash
#
# An emulator of SES v2: aws-ses-v2-local, an npm package, installed once per checkout. What it received is in memory: a restart empties it.

# shellcheck disable=SC2154 # root: services.sh sets it
readonly sesv2_modules=$root/.local/sesv2-server sesv2_source=$root/scripts/sesv2

sesv2_account() { id -un; } # it needs no separate user, who could not access the modules in a checkout below /root
sesv2_port() { echo "$SESV2_PORT"; }
sesv2_port_names() { echo SESV2_PORT; }
sesv2_url_name() { echo SESV2_URL; }
sesv2_url() { echo "http://127.0.0.1:$SESV2_PORT"; }
sesv2_stop_signal() { echo TERM; }

sesv2_installed() { command -v node >/dev/null && cmp -s "$sesv2_source/package-lock.json" "$sesv2_modules/installed.json"; }

# sesv2_install: under a lock, because the tests of several packages may start the installation concurrently.
sesv2_install() {
	if ! command -v node >/dev/null || ! command -v npm >/dev/null; then "$root/scripts/install.sh" nodejs npm >&2 || return; fi
	mkdir -p "$sesv2_modules"
	(
		flock 9
		! sesv2_installed || exit 0
		say "installing aws-ses-v2-local"
		cp "$sesv2_source/package.json" "$sesv2_source/package-lock.json" "$sesv2_modules/"
		npm ci --prefix "$sesv2_modules" --ignore-scripts --no-audit --no-fund --loglevel=error >&2 || exit
		cp "$sesv2_source/package-lock.json" "$sesv2_modules/installed.json"
	) 9>"$sesv2_modules.lock"
}

sesv2_ready() (
	exec 8<>"/dev/tcp/127.0.0.1/$SESV2_PORT" || exit
	printf 'GET /health-check HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&8
	read -r -t 2 _ status _ <&8
	[[ $status == 200 ]]
) 2>/dev/null

sesv2_run() { exec "$@" node "$sesv2_modules/node_modules/aws-ses-v2-local/dist/cli.js" --host 127.0.0.1 --port "$SESV2_PORT"; }
