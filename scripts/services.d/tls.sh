# shellcheck shell=bash
#
# TLS: a service that is started with TLS_DIR set to a folder with ca.pem, server.pem and server.key
# accepts only TLS, until it is destroyed. The certificate must be valid for 127.0.0.1.

# take_tls_files SERVICE: copies the files, because servers refuse a key that others may read.
take_tls_files() {
	local home file
	[[ -n ${TLS_DIR:-} ]] || return 0
	home=$(readlink -f "$LOCAL_DIR/$1")/tls
	own_directory "$1" "$home"
	for file in ca.pem server.pem server.key; do
		install -m 600 "$TLS_DIR/$file" "$home/$file"
		((EUID)) || chown "$("$1_account"):" "$home/$file"
	done
}

speaks_tls() { [[ -f $LOCAL_DIR/$1/tls/server.key ]]; }
