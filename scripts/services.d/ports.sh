# shellcheck shell=bash
#
# Ports: set by the environment, else remembered in $LOCAL_DIR/ports, else a free one. Several
# checkouts can run at the same time.

declare -A named=() # the variables set by the environment

# port_free PORT: no process listens on it (state 0A in the kernel's tables).
port_free() {
	! grep -qiE "^ *[0-9]+: [0-9A-F]+:$(printf '%04X' "$1") [0-9A-F]+:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# reserve_port PORT: prevents other checkouts from choosing it for two minutes, until a server listens on it.
reserve_port() {
	local all=${TMPDIR:-/tmp}/email-gateway-ports
	[[ -d $all ]] || mkdir -m 1777 "$all"
	[[ -z $(find "$all/$1" -maxdepth 0 -mmin +2 2>/dev/null) ]] || rmdir "$all/$1"
	mkdir "$all/$1"
} 2>/dev/null

# choose_port: a free port below the kernel's ephemeral range, whose ports clients could take first.
choose_port() {
	local low port
	read -r low _ </proc/sys/net/ipv4/ip_local_port_range
	((low > 21000)) || low=32768
	for _ in {1..100}; do
		port=$((20000 + RANDOM % (low - 20000)))
		if port_free "$port" && ! grep -qs "=$port\$" "$LOCAL_DIR/ports" && reserve_port "$port"; then
			echo "$port"
			return
		fi
	done
	die "no free port found between 20000 and $low"
}

remember_port() {
	{
		grep -v "^$1=" "$LOCAL_DIR/ports" 2>/dev/null || true
		echo "$1=$2"
	} >"$LOCAL_DIR/ports.new"
	mv "$LOCAL_DIR/ports.new" "$LOCAL_DIR/ports"
	printf -v "$1" '%s' "$2"
}

# load_ports SERVICE...: sets the variables of the services' ports.
load_ports() {
	local service name remembered
	exec 7>"$LOCAL_DIR/ports.lock"
	flock 7
	for service in "$@"; do
		for name in $("${service}_port_names"); do
			remembered=$(sed -n "s/^$name=//p" "$LOCAL_DIR/ports" 2>/dev/null || true)
			if [[ -n ${!name:-} ]]; then
				named[$name]=yes
				[[ ${!name} == "$remembered" ]] || remember_port "$name" "${!name}"
			elif [[ -n $remembered ]]; then
				printf -v "$name" '%s' "$remembered"
			else
				remember_port "$name" "$(choose_port)"
			fi
		done
	done
	exec 7>&-
}

# settle_ports SERVICE...: replaces remembered ports that are in use by others; for a port set by the environment that is an
# error.
settle_ports() {
	local service name
	for service in "$@"; do
		! running "$service" || continue
		for name in $("${service}_port_names"); do
			port_free "${!name}" && continue
			[[ -z ${named[$name]:-} ]] || die "port ${!name} is in use: set $name to another one"
			remember_port "$name" "$(choose_port)"
		done
	done
}
