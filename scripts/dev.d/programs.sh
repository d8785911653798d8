# shellcheck shell=bash
#
# Functions of dev.sh that start, monitor and stop the project's programs.

readonly bin=$LOCAL_DIR/bin log=$LOCAL_DIR/log
declare -A pid_of=()
building=

# local_address ADDRESS: the address for clients on this machine: ":8080" and "0.0.0.0:8080" listen on every interface.
local_address() {
	case ${1%:*} in
	'' | 0.0.0.0) echo "127.0.0.1:${1##*:}" ;;
	*) echo "$1" ;;
	esac
}

# require_free VARIABLE...: fails if a program already listens on the addresses in the variables.
require_free() {
	local name address
	for name in "$@"; do
		address=$(local_address "${!name}")
		if (exec 7<>"/dev/tcp/${address%:*}/${address##*:}") 2>/dev/null; then
			die "$address is in use: set another address in $name"
		fi
	done
}

# http_ok ADDRESS PATH: whether a GET returns 200, without curl, which may not be installed.
http_ok() (
	exec 7<>"/dev/tcp/${1%:*}/${1##*:}" || exit
	printf 'GET %s HTTP/1.0\r\nHost: %s\r\n\r\n' "$2" "$1" >&7
	read -r -t 2 _ status _ <&7
	[[ $status == 200 ]]
) 2>/dev/null

# end_leftovers NAME...: stops programs of an earlier run whose dev.sh was killed. It only stops processes of our own
# binaries.
end_leftovers() {
	local name pid
	for name in "$@"; do
		pid=$(cat "$log/$name.pid" 2>/dev/null) || continue
		[[ $(readlink "/proc/$pid/exe") =~ ^$bin/$name(\ \(deleted\))?$ ]] || continue
		say "ending $name left over from an earlier run (pid $pid)"
		kill "$pid"
		while [[ -d /proc/$pid ]] && ! grep -qs '^State:\s[ZX]' "/proc/$pid/status"; do sleep 0.05; done
	done
}

# launch NAME: starts it in its own session, so that Ctrl-C reaches only dev.sh, which stops all programs in order.
launch() {
	setsid "$bin/$1" >"$log/$1.log" 2>&1 8>&- &
	pid_of[$1]=$!
	echo $! >"$log/$1.pid"
}

# build PACKAGE...: the first build takes minutes on a small machine, so it prints its progress.
build() {
	local began=$SECONDS next=$((SECONDS + 10)) status=0
	go build -o "$bin/" "$@" 8>&- &
	building=$!
	while kill -0 "$building" 2>/dev/null; do
		sleep 0.2
		((SECONDS < next)) || { say "still building, for $((SECONDS - began)) s; the first build takes minutes" && next=$((SECONDS + 10)); }
	done
	wait "$building" || status=$?
	building=
	((status == 0)) || die "the programs cannot be built, see above"
	say "built in $((SECONDS - began)) s"
}

# await_end: waits until a program exits, prints its name and the reason, and removes it from the list.
await_end() {
	local ended name status=0
	wait -n -p ended "${pid_of[@]}" || status=$?
	for name in "${!pid_of[@]}"; do
		[[ ${pid_of[$name]} == "${ended:-}" ]] || continue
		say "dev: $name exited unexpectedly with status $status; last lines of $log/$name.log:"
		tail -n 5 "$log/$name.log" >&2 || true
		unset "pid_of[$name]"
		rm -f "$log/$name.pid"
	done
}

# await NAME ADDRESS PATH
await() {
	local deadline=$((SECONDS + 30))
	until http_ok "$(local_address "$2")" "$3"; do
		if [[ ! -d /proc/${pid_of[$1]} ]] || ((SECONDS > deadline)); then
			tail -n 20 "$log/$1.log" >&2
			die "$1 is not ready at $2$3"
		fi
		sleep 0.05
	done
}

# end NAME...: signals all programs, then waits for them. Programs finish their work in progress: the worker may need its 40
# seconds.
end() {
	local name
	for name in "$@"; do
		[[ -z ${pid_of[$name]:-} ]] || kill "${pid_of[$name]}" 2>/dev/null || true
	done
	for name in "$@"; do
		[[ -z ${pid_of[$name]:-} ]] || wait "${pid_of[$name]}" || true
		rm -f "$log/$name.pid"
	done
}
