# shellcheck shell=bash
# Redis Sentinel: a server, its replica, and three sentinels of which two must agree that the server is down.

wave redis-1 redis-2
wave sentinel-1 sentinel-2 sentinel-3

# The servers rewrite these files when a role changes, so existing files are kept.
configure() {
	local home=$LOCAL_DIR/${1%-*} quick='repl-diskless-sync-delay 0' # by default synchronization is delayed by 5 s for another replica
	case $1 in
	redis-1) own_file redis "$home/redis.conf" "$quick" ;;
	redis-2) own_file redis "$home/redis.conf" "replicaof 127.0.0.1 $(port_of redis-1 REDIS_PORT)
$quick" ;;
	sentinel-*)
		# failover-timeout: sentinels retry a failover after twice this time.
		own_file sentinel "$home/sentinel.conf" "sentinel monitor gateway 127.0.0.1 $(port_of redis-1 REDIS_PORT) 2
sentinel down-after-milliseconds gateway 2000
sentinel failover-timeout gateway 5000"
		;;
	esac
}

# The requirements of a failover: every sentinel knows the other two and the replica, and the replica has the master's data.
complete() {
	local name answer
	for name in sentinel-1 sentinel-2 sentinel-3; do
		answer=$(redis-cli -p "$(port_of "$name" SENTINEL_PORT)" sentinel master gateway | paste -sd ' ') || return
		[[ $answer == *'num-slaves 1 '*'num-other-sentinels 2 '* ]] || return
	done
	redis-cli -p "$(port_of redis-1 REDIS_PORT)" info replication | grep -qE 'state=online|master_link_status:up'
}

form() { await 30 complete; }

cluster_env() {
	local hosts
	printf -v hosts '127.0.0.1:%s,' "$(port_of sentinel-1 SENTINEL_PORT)" "$(port_of sentinel-2 SENTINEL_PORT)" "$(port_of sentinel-3 SENTINEL_PORT)"
	echo "export REDIS_URL='redis-sentinel://${hosts%,}/0?master=gateway'"
}
