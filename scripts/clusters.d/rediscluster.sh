# shellcheck shell=bash
# Redis Cluster: three masters, each with a replica.

wave redis-{1..6}

redis_port_names() { echo REDIS_PORT REDIS_BUS_PORT; }

# cluster-require-full-coverage no: when one master is lost, the slots of the others stay available. By default the
# synchronization of a replica is delayed by 5 s for further ones, and a replica without the data is not elected.
configure() {
	own_file redis "$LOCAL_DIR/redis/redis.conf" "cluster-enabled yes
cluster-port $(port_of "$1" REDIS_BUS_PORT)
cluster-node-timeout 2000
cluster-require-full-coverage no
repl-diskless-sync-delay 0"
}

# Every node has all slots assigned, and three masters have a replica with their data.
complete() {
	local name known roles=
	for name in "$@"; do
		known=$(redis-cli -p "$(port_of "$name" REDIS_PORT)" cluster nodes) || return
		[[ $known != *fail* && $(grep -cE 'slave .* connected' <<<"$known") == 3 && $(grep -cE 'master .* connected [0-9]' <<<"$known") == 3 ]] || return
		roles+=$(redis-cli -p "$(port_of "$name" REDIS_PORT)" role | paste -sd ' ')
	done
	[[ $(grep -oE 'slave [^ ]+ [0-9]+ connected' <<<"$roles" | wc -l) == 3 ]]
}

form() {
	local name addresses=()
	for name in "$@"; do addresses+=("127.0.0.1:$(port_of "$name" REDIS_PORT)"); done
	if [[ $(redis-cli -p "${addresses[0]#*:}" cluster info) != *cluster_slots_assigned:16384* ]]; then
		redis-cli --cluster create "${addresses[@]}" --cluster-replicas 1 --cluster-yes >"$LOCAL_DIR/create.log" || die "see $LOCAL_DIR/create.log"
	fi
	await 30 complete "$@"
}

cluster_env() {
	local name hosts=
	for name in "$@"; do hosts+=,127.0.0.1:$(port_of "$name" REDIS_PORT); done
	echo "export REDIS_URL='redis-cluster://${hosts#,}'"
}
