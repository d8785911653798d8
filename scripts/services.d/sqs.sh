# shellcheck shell=bash
#
# An SQS and SNS server: fauxqs, an npm package, installed once per checkout. Its queues are in memory: a restart empties them.

# shellcheck disable=SC2154 # root: services.sh sets it
readonly sqs_modules=$root/.local/sqs-server sqs_source=$root/scripts/sqs

sqs_account() { id -un; } # it needs no separate user, who could not access the modules in a checkout below /root
sqs_port() { echo "$SQS_PORT"; }
sqs_port_names() { echo SQS_PORT; }
sqs_url_name() { echo SQS_URL; }
sqs_url() { echo "http://127.0.0.1:$SQS_PORT"; }
sqs_stop_signal() { echo TERM; }

sqs_installed() { command -v node >/dev/null && cmp -s "$sqs_source/package-lock.json" "$sqs_modules/installed.json"; }

# sqs_install: under a lock, because the tests of several packages may start the installation concurrently.
sqs_install() {
	if ! command -v node >/dev/null || ! command -v npm >/dev/null; then "$root/scripts/install.sh" nodejs npm >&2 || return; fi
	mkdir -p "$sqs_modules"
	(
		flock 9
		! sqs_installed || exit 0
		say "installing fauxqs"
		cp "$sqs_source/package.json" "$sqs_source/package-lock.json" "$sqs_modules/"
		npm ci --prefix "$sqs_modules" --ignore-scripts --no-audit --no-fund --loglevel=error >&2 || exit
		cp "$sqs_source/package-lock.json" "$sqs_modules/installed.json"
	) 9>"$sqs_modules.lock"
}

sqs_ready() (
	exec 8<>"/dev/tcp/127.0.0.1/$SQS_PORT" || exit
	printf 'GET /health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&8
	read -r -t 2 _ status _ <&8
	[[ $status == 200 ]]
) 2>/dev/null

sqs_run() { exec "$@" node "$sqs_source/server.mjs" "$sqs_modules" "$SQS_PORT"; }
