# shellcheck shell=bash
# Where a service lives and as whom it runs.

# as_account SERVICE: fills the array `as` with what runs a command as the account of the service. Root runs each server
# as the user that its package made (Postgres refuses root); anyone else runs it as himself.
as_account() {
	as=()
	((EUID)) || as=(setpriv "--reuid=$("$1_account")" "--regid=$("$1_account")" --clear-groups)
}

# The name of the directory below /tmp that stands in for $LOCAL_DIR, see make_home.
stand_in() { printf 'email-gateway-%s' "$(printf '%s' "$LOCAL_DIR" | sha256sum | cut -c1-12)"; }

# drop_stale_link SERVICE: a link whose target is gone, or that came along with a copied checkout, is not ours.
drop_stale_link() {
	local home=$LOCAL_DIR/$1
	if [[ -L $home && (! -d $home || $(readlink "$home") != */"$(stand_in)/$1") ]]; then rm "$home"; fi
}

# make_home SERVICE: $LOCAL_DIR/SERVICE, or a link to a private directory below /tmp where the account cannot
# get through to $LOCAL_DIR (a checkout below /root, say).
make_home() {
	local home=$LOCAL_DIR/$1 as base private
	[[ ! -d $home ]] || return 0
	as_account "$1"
	if "${as[@]}" test -x "$LOCAL_DIR"; then
		own_directory "$1" "$home"
		return
	fi
	for base in "${TMPDIR:-/tmp}" /tmp; do
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

# own_file SERVICE PATH TEXT: makes the file, writable for the service's account, unless it is there.
own_file() {
	[[ ! -f $2 ]] || return 0
	printf '%s\n' "$3" >"$2"
	((EUID)) || chown "$("$1_account"):" "$2"
}

remove_home() {
	local target
	if target=$(readlink "$LOCAL_DIR/$1"); then
		rm -rf "$target"
		rmdir --ignore-fail-on-non-empty "$(dirname "$target")"
	fi
	rm -rf "${LOCAL_DIR:?}/$1"
}
