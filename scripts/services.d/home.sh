# shellcheck shell=bash
#
# The directory and the account of a service.

# as_account SERVICE: sets the array `as` to the prefix that runs a command as the service's account. Root runs each server
# as the user created by its package (Postgres refuses root); other users run it as themselves.
as_account() {
	as=()
	((EUID)) || as=(setpriv "--reuid=$("$1_account")" "--regid=$("$1_account")" --clear-groups)
}

# The name of the directory that replaces $LOCAL_DIR, see make_home.
stand_in() { printf 'email-gateway-%s' "$(printf '%s' "$LOCAL_DIR" | sha256sum | cut -c1-12)"; }

# drop_stale_link SERVICE: removes a link whose target is missing, or that belongs to another checkout.
drop_stale_link() {
	local home=$LOCAL_DIR/$1
	if [[ -L $home && (! -d $home || $(readlink "$home") != */"$(stand_in)/$1") ]]; then rm "$home"; fi
}

# make_home SERVICE: $LOCAL_DIR/SERVICE, or a link to a private directory: below $SERVICES_BASE if that is set (such as a file
# system in memory), or below /tmp if the account cannot access $LOCAL_DIR (such as a checkout below /root).
make_home() {
	local home=$LOCAL_DIR/$1 as base private
	[[ ! -d $home ]] || return 0
	as_account "$1"
	if [[ -z ${SERVICES_BASE:-} ]] && "${as[@]}" test -x "$LOCAL_DIR"; then
		own_directory "$1" "$home"
		return
	fi
	for base in "${SERVICES_BASE:-${TMPDIR:-/tmp}}" /tmp; do
		"${as[@]}" test -x "$base" || continue
		private=$base/$(stand_in)
		mkdir -m 711 "$private" 2>/dev/null || [[ -O $private && ! -L $private ]] || die "$private belongs to someone else"
		own_directory "$1" "$private/$1"
		ln -s "$private/$1" "$home"
		return
	done
	die "$1: the user $("$1_account") can reach neither $LOCAL_DIR nor /tmp"
}

own_directory() {
	mkdir -p "$2"
	chmod 700 "$2"
	((EUID)) || chown "$("$1_account"):" "$2"
}

# own_file SERVICE PATH TEXT: creates the file, writable for the service's account, unless it exists.
own_file() {
	[[ ! -f $2 ]] || return 0
	printf '%s\n' "$3" >"$2"
	((EUID)) || chown "$("$1_account"):" "$2"
}

remove_home() {
	local target shared
	if target=$(readlink "$LOCAL_DIR/$1"); then
		rm -rf "$target"
		shared=$(dirname "$target")
		# The services are removed at the same time: another one may have removed it.
		rmdir --ignore-fail-on-non-empty "$shared" 2>/dev/null || [[ ! -e $shared ]]
	fi
	rm -rf "${LOCAL_DIR:?}/$1"
}
