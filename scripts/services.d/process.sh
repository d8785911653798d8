# shellcheck shell=bash
# How the processes of a service start and end. A process is ours when a pid file of ours names it and it works in the
# service's own directory, so that a number that was reused meanwhile is never signalled.

# launch SERVICE: in its own session, so that a Ctrl-C in the terminal ends what the user looks at and not the database.
launch() {
	local as home
	as_account "$1"
	home=$(readlink -f "$LOCAL_DIR/$1")
	[[ ! -f $home/log ]] || mv "$home/log" "$home/log.1"
	(
		cd "$home" || exit # before the process is made: it is ours from its first moment on, see alive
		(
			exec 9>&- >>"$home/log" 2>&1 </dev/null
			"$1_run" setsid "${as[@]}" env HOME="$home"
		) &
		echo $! >"$home/pid"
	)
}

# alive SERVICE PIDFILE: the process that the file names exists and is the service's.
alive() {
	local pid
	pid=$(cat "$LOCAL_DIR/$1/$2" 2>/dev/null) || return
	[[ -n $pid && $(readlink "/proc/$pid/cwd")/ == "$(readlink -f "$LOCAL_DIR/$1")"/* ]]
}

running() { alive "$1" pid; }

# await_ready SERVICE: three minutes, since a RabbitMQ takes 10 s of CPU to start, and others may be starting beside it.
await_ready() {
	local deadline=$((SECONDS + 180))
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
# keeps none of them. The process is stopped before they are listed, else one that it makes meanwhile would be left: such a
# child of Postgres may wait for a lock of one that was killed, for ever, and then Postgres does not start again.
signal_and_wait() {
	local file pid pids deadline=$((SECONDS + 30))
	for file in pid epmd.pid; do
		alive "$1" "$file" || continue
		pid=$(<"$LOCAL_DIR/$1/$file")
		pids=("$pid")
		if [[ $2 == KILL ]]; then
			kill -STOP "$pid" 2>/dev/null || true
			mapfile -t -O 1 pids < <(children "$pid")
		fi
		kill "-$2" "${pids[@]}" 2>/dev/null || true
		for pid in "${pids[@]}"; do
			until gone "$pid" "$deadline"; do sleep 0.02; done
		done
		rm "$LOCAL_DIR/$1/$file"
	done
}

# signal_family SERVICE SIGNAL: the process and its children, without waiting. STOP reaches the parent first, so that it makes
# no child unseen; CONT reaches it last.
signal_family() {
	local file pid pids
	for file in pid epmd.pid; do
		alive "$1" "$file" || continue
		pid=$(<"$LOCAL_DIR/$1/$file")
		[[ $2 != STOP ]] || kill -STOP "$pid"
		mapfile -t pids < <(children "$pid")
		kill "-$2" "${pids[@]}" "$pid" 2>/dev/null || true
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

# each ACTION SERVICE...: runs the action for every service at the same time, each under its own lock,
# and fails when one fails. Descriptor 9 is the lock; no server may inherit it.
each() {
	local action=$1 service pids=() failed=0
	shift
	for service in "$@"; do
		(
			flock 9
			"$action" "$service"
		) 9>"$LOCAL_DIR/$service.lock" &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do
		wait "$pid" || failed=1
	done
	return "$failed"
}
