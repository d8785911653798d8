# shellcheck shell=bash
#
# Starting and stopping a service's processes. A process is ours if its id is in our pid file and its
# working directory is the service's, so that a reused process id is never signalled.

# launch SERVICE: starts it in its own session, so that Ctrl-C in the terminal does not stop the database.
launch() {
	local as home
	as_account "$1"
	home=$(readlink -f "$LOCAL_DIR/$1")
	[[ ! -f $home/log ]] || mv "$home/log" "$home/log.1"
	(
		cd "$home" || exit # before the process starts, so that alive recognizes it immediately
		(
			exec 9>&- >>"$home/log" 2>&1 </dev/null
			"$1_run" setsid "${as[@]}" env HOME="$home"
		) &
		echo $! >"$home/pid"
	)
}

# alive SERVICE PIDFILE: the process in the file exists and belongs to the service.
alive() {
	local pid
	pid=$(cat "$LOCAL_DIR/$1/$2" 2>/dev/null) || return
	[[ -n $pid && $(readlink "/proc/$pid/cwd")/ == "$(readlink -f "$LOCAL_DIR/$1")"/* ]]
}

running() { alive "$1" pid; }

# await_ready SERVICE: the timeout is three minutes, because RabbitMQ needs 10 s of CPU to start, and others may start at
# the same time.
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

# signal_and_wait SERVICE SIGNAL: returns when the process has exited. KILL is also sent to its children, as in a power
# failure. The process is frozen before they are listed, otherwise a child started meanwhile would survive: such a child of
# Postgres may wait forever for a lock of a killed one, and then Postgres does not start again.
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
			until gone "$pid" "$deadline"; do sleep 0.05; done
		done
		rm "$LOCAL_DIR/$1/$file"
	done
}

# signal_family SERVICE SIGNAL: signals the process and its children without waiting. STOP is sent to the parent first, so
# that it starts no further child; CONT is sent to it last.
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

# gone PID DEADLINE: a zombie (Z) still has its process id, which a restarting Postgres would treat as another server; a
# container's first process may never reap it, so this waits for two seconds only.
gone() {
	local stat
	read -r stat 2>/dev/null <"/proc/$1/stat" || return 0
	if [[ ${stat##*) } == [ZX]* ]]; then
		((SECONDS > $2 - 28))
	else
		((SECONDS <= $2)) || die "process $1 does not exit"
		return 1
	fi
}

# each ACTION SERVICE...: runs the action for all services concurrently, each under its own lock, and fails if one fails.
# Descriptor 9 is the lock; no server may inherit it.
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
