# shellcheck shell=bash
# Where a service lives and how its processes start and end. A process is ours when a pid file of ours names it and it
# works in the service's own directory, so that a number that was reused meanwhile is never signalled.

# as_account SERVICE: fills the array `as` with what runs a command as the account of the service. Root runs each server
# as the user that its package made (Postgres refuses root); anyone else runs it as himself.
as_account() {
	as=()
	((EUID)) || as=(setpriv "--reuid=$("$1_account")" "--regid=$("$1_account")" --clear-groups)
}

# The name of the directory below /tmp that stands in for $LOCAL_DIR, see make_home.
stand_in=email-gateway-$(printf '%s' "$LOCAL_DIR" | sha256sum | cut -c1-12)

# drop_stale_link SERVICE: a link whose target is gone, or that came along with a copied checkout, is not ours.
drop_stale_link() {
	local home=$LOCAL_DIR/$1
	if [[ -L $home && (! -d $home || $(readlink "$home") != */"$stand_in/$1") ]]; then rm "$home"; fi
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
		private=$base/$stand_in
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

remove_home() {
	local target
	if target=$(readlink "$LOCAL_DIR/$1"); then
		rm -rf "$target"
		rmdir --ignore-fail-on-non-empty "$(dirname "$target")"
	fi
	rm -rf "${LOCAL_DIR:?}/$1"
}

# launch SERVICE: in its own session, so that a Ctrl-C in the terminal ends what the user looks at and not the database.
launch() {
	local as home
	as_account "$1"
	home=$(readlink -f "$LOCAL_DIR/$1")
	[[ ! -f $home/log ]] || mv "$home/log" "$home/log.1"
	(
		exec 9>&- >>"$home/log" 2>&1 </dev/null
		cd "$home" || exit
		"$1_run" setsid "${as[@]}" env HOME="$home"
	) &
	echo $! >"$home/pid"
}

# alive SERVICE PIDFILE: the process that the file names exists and is the service's.
alive() {
	local pid
	pid=$(cat "$LOCAL_DIR/$1/$2" 2>/dev/null) || return
	[[ -n $pid && $(readlink "/proc/$pid/cwd")/ == "$(readlink -f "$LOCAL_DIR/$1")"/* ]]
}

running() { alive "$1" pid; }

await_ready() {
	local deadline=$((SECONDS + 60))
	until "$1_ready"; do
		if ! running "$1" || ((SECONDS > deadline)); then
			say "$1 did not start; the end of $LOCAL_DIR/$1/log:"
			tail -n 20 "$LOCAL_DIR/$1/log" >&2
			return 1
		fi
		sleep 0.05
	done
}

# signal_and_wait SERVICE SIGNAL: returns when the process is gone. KILL takes its children too: a machine that loses power
# keeps none of them.
signal_and_wait() {
	local file pid pids deadline=$((SECONDS + 30))
	for file in pid epmd.pid; do
		alive "$1" "$file" || continue
		pid=$(<"$LOCAL_DIR/$1/$file")
		pids=("$pid")
		[[ $2 != KILL ]] || mapfile -t -O 1 pids < <(children "$pid")
		kill "-$2" "${pids[@]}" 2>/dev/null || true
		for pid in "${pids[@]}"; do
			until gone "$pid" "$deadline"; do sleep 0.02; done
		done
		rm "$LOCAL_DIR/$1/$file"
	done
}

children() { grep -lsE "^PPid:\s$1\$" /proc/[0-9]*/status | cut -d/ -f3 || true; }

# gone PID DEADLINE: a process that has ended but was not yet collected by its parent (Z) still holds its number, which a
# restarting Postgres would take for a rival; a container's first process may never collect it, so only two seconds' worth.
gone() {
	[[ -d /proc/$1 ]] || return 0
	if grep -qs '^State:\s[ZX]' "/proc/$1/status"; then
		((SECONDS > $2 - 28))
	else
		((SECONDS <= $2)) || die "process $1 does not end"
		return 1
	fi
}
