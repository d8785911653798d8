# shellcheck shell=bash
#
# An S3 server: versitygw over a folder, whose subfolders are the buckets. No distribution packages
# it, so it is built from its Go module, once per checkout: the private instances of tests use the same binary.

# shellcheck disable=SC2154 # root: services.sh sets it
readonly s3_version=v1.8.0 s3_program=$root/.local/bin/versitygw
readonly s3_access_key=gateway s3_secret_key=gateway-secret # the region and these are in docker-compose.yml too

s3_account() { id -un; } # it needs no separate user, who could not access the binary in a checkout below /root
s3_port() { echo "$S3_PORT"; }
s3_port_names() { echo S3_PORT; }
s3_url_name() { echo S3_URL; }
s3_url() { echo "s3://email-gateway?endpoint=http://127.0.0.1:$S3_PORT&region=us-east-1&s3ForcePathStyle=true"; }
s3_stop_signal() { echo TERM; }

s3_installed() { [[ $(go version -m "$s3_program" 2>/dev/null) == *$'/versitygw\t'"$s3_version"$'\t'* ]]; }

# s3_install: under a lock, because the tests of several packages may start the installation concurrently.
s3_install() {
	mkdir -p "${s3_program%/*}"
	(
		flock 9
		! s3_installed || exit 0
		say "building versitygw $s3_version"
		GOBIN=${s3_program%/*} GOFLAGS='' go install -ldflags='-s -w' "github.com/versity/versitygw/cmd/versitygw@$s3_version"
	) 9>"$s3_program.lock"
}

# s3_credentials: the AWS SDK's variables; the URL contains no credentials.
s3_credentials() {
	echo "export AWS_ACCESS_KEY_ID=${s3_access_key@Q}"
	echo "export AWS_SECRET_ACCESS_KEY=${s3_secret_key@Q}"
}

s3_ready() (
	exec 8<>"/dev/tcp/127.0.0.1/$S3_PORT" || exit
	printf 'GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&8
	read -r -t 2 _ status _ <&8
	[[ $status == 200 ]]
) 2>/dev/null

# Attributes are stored in a separate folder: not every file system supports extended attributes.
s3_run() {
	"$@" mkdir -p data/email-gateway attributes
	exec "$@" ROOT_ACCESS_KEY="$s3_access_key" ROOT_SECRET_KEY="$s3_secret_key" \
		"$s3_program" --port "127.0.0.1:$S3_PORT" --health /healthz --quiet \
		posix --sidecar "$PWD/attributes" "$PWD/data"
}
