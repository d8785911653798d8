package e2e_test

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// downAfter is the down-after-milliseconds of clusters.d/sentinel.sh.
	downAfter = 2 * time.Second
	// sentinelLimit is the maximum time between down-after and the next email.
	sentinelLimit = 3 * time.Second
)

// master returns the name of the current master according to the sentinels.
func (c *cluster) master() string {
	c.t.Helper()
	o, err := redis.ParseURL(c.env("sentinel-1")["SENTINEL_URL"])
	if err != nil {
		c.t.Fatal(err)
	}
	sentinel := redis.NewSentinelClient(o)
	defer func() { _ = sentinel.Close() }()
	addr, err := sentinel.GetMasterAddrByName(c.t.Context(), "gateway").Result()
	if err != nil {
		c.t.Fatal(err)
	}
	return c.nodeAt(addr[0]+":"+addr[1], "redis-1", "redis-2")
}

// nodeAt returns the node that listens at the address.
func (c *cluster) nodeAt(addr string, nodes ...string) string {
	c.t.Helper()
	for _, node := range nodes {
		if o, err := redis.ParseURL(c.env(node)["REDIS_URL"]); err == nil && o.Addr == addr {
			return node
		}
	}
	c.t.Fatalf("no node of %s listens at %s", c.name, addr)
	return ""
}

// The smoke test of the clusters, which is part of every test run.
func TestCluster_SentinelMasterKilled(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "sentinel")
	s := startClusterSystem(t, c, nil)
	load := s.startLoad()
	s.awaitRequests(20)
	master := c.master()
	c.kill(master)
	killed := time.Now()
	limit := downAfter + sentinelLimit
	if os.Getenv("CLUSTERS") == "" {
		limit = stallLimit // other tests take the processors
	}
	took := sentAgain(s, "normal", killed, killed, limit)
	t.Logf("master killed: sending again after %s", took.Round(10*time.Millisecond))
	load.finish()
}

func TestCluster_SentinelMasterFrozen(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	c := startCluster(t, "sentinel")
	s := startClusterSystem(t, c, nil)
	startProgram(t, "dispatcher", s.env)
	load := s.startLoad()
	s.awaitRequests(20)
	for range 2 {
		master := c.master()
		c.freeze(master)
		frozen := time.Now()
		neverReady(s, s.dispatcher, 1)
		took := sentAgain(s, "normal", frozen, frozen, downAfter+sentinelLimit)
		soonReady(s)
		t.Logf("master frozen: sending again after %s", took.Round(10*time.Millisecond))
		c.thaw(master)
		c.start() // waits for the replica
	}
	load.finish()
}
