package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/shared/waittest"
)

const (
	// electionLimit is the maximum time of an election: the node timeout of 2 s, and the votes, which Redis repeats
	// after 8 s if they are late.
	electionLimit = time.Minute
	// clusterLimit is the maximum time between the election and the next email.
	clusterLimit = 2 * time.Second
	// commandTimeout is how long one command waits for a node that does not answer.
	commandTimeout = 2 * time.Second
)

// pendingOf is a key in the slot of each queue.
var pendingOf = map[string]string{
	"high": "asynq:{email:send:high}:pending", "normal": "asynq:{email:send}:pending", "low": "asynq:{email:send:low}:pending",
}

// redisNodes are the nodes of clusters.d/rediscluster.sh.
var redisNodes = []string{"redis-1", "redis-2", "redis-3", "redis-4", "redis-5", "redis-6"}

// node connects to one node of a Redis Cluster.
func (c *cluster) node(name string) *redis.Client {
	c.t.Helper()
	o, err := redis.ParseURL(c.env(name)["REDIS_URL"])
	if err != nil {
		c.t.Fatal(err)
	}
	o.DialTimeout, o.ReadTimeout, o.MaxRetries = time.Second, time.Second, -1
	client := redis.NewClient(o)
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// owner returns the id and name of the master of the key's slot, as this node reports it.
func (c *cluster) owner(asked *redis.Client, key string) (id, name string) {
	c.t.Helper()
	slot := int(asked.ClusterKeySlot(c.t.Context(), key).Val())
	slots, err := asked.ClusterSlots(c.t.Context()).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, s := range slots {
		if s.Start <= slot && slot <= s.End {
			return s.Nodes[0].ID, c.nodeAt(s.Nodes[0].Addr, redisNodes...)
		}
	}
	c.t.Fatalf("no master has slot %d", slot)
	return "", ""
}

// another returns a node that is not that one.
func another(node string) string {
	if node == redisNodes[0] {
		return redisNodes[1]
	}
	return redisNodes[0]
}

// awaitElection waits until this node reports another master for the key's slot.
func (c *cluster) awaitElection(asked *redis.Client, key, former string) time.Time {
	c.t.Helper()
	start := time.Now()
	eventually(c.t, func() error {
		slots, err := asked.ClusterSlots(c.t.Context()).Result()
		slot := int(asked.ClusterKeySlot(c.t.Context(), key).Val())
		for _, s := range slots {
			if s.Start <= slot && slot <= s.End && s.Nodes[0].ID != former {
				return nil
			}
		}
		return errors.Join(fmt.Errorf("slot %d is still the former master's", slot), err)
	})
	if took := time.Since(start); took > electionLimit {
		c.t.Errorf("the election took %s, want %s at most", took, electionLimit)
	}
	return time.Now()
}

// The master of the normal queue's slot is killed five times and returns as a replica.
func TestCluster_RedisFailovers(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	c := startCluster(t, "rediscluster")
	s := startClusterSystem(t, c, nil)
	startProgram(t, "dispatcher", s.env)
	load := s.startLoad()
	s.awaitRequests(20)
	for range 5 {
		id, master := c.owner(c.node("redis-1"), pendingOf["normal"])
		asked := c.node(another(master))
		c.kill(master)
		killed := time.Now()
		elected := c.awaitElection(asked, pendingOf["normal"], id)
		took := sentAgain(s, "normal", killed, elected, clusterLimit)
		t.Logf("%s killed: elected after %s, sending again %s after that", master,
			elected.Sub(killed).Round(10*time.Millisecond), took.Round(10*time.Millisecond))
		c.start(master)
		c.start()
	}
	load.finish()
}

// One master of three may evict keys: every report of the dispatcher says so, and doctor prints it.
func TestCluster_RedisEveryMasterIsAsked(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	c := startCluster(t, "rediscluster")
	_, master := c.owner(c.node("redis-1"), "asynq:servers")
	if err := c.node(master).ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	s := startClusterSystem(t, c, nil)
	reports := make(map[time.Time]string)
	eventually(t, func() error {
		var at time.Time
		var policy string
		if err := s.db.SQL.QueryRowContext(t.Context(), `
			SELECT updated_at, details->'redisKeeps'->>'policy' FROM process_status WHERE service = 'dispatcher'`).Scan(&at, &policy); err != nil {
			return err
		}
		if reports[at] = policy; len(reports) < 4 {
			return fmt.Errorf("%d reports", len(reports))
		}
		return nil
	})
	for at, policy := range reports {
		if policy != "allkeys-lru" {
			t.Errorf("the report of %s says %s", at, policy)
		}
	}
}

// moveSlot assigns the slot of a key, which must be empty where it was, to another master.
func (c *cluster) moveSlot(key, to string) {
	c.t.Helper()
	slot := c.node(to).ClusterKeySlot(c.t.Context(), key).Val()
	id := c.node(to).ClusterMyID(c.t.Context()).Val()
	for _, name := range redisNodes {
		if err := c.node(name).Do(c.t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", id).Err(); err != nil && !strings.Contains(err.Error(), "only with masters") {
			c.t.Fatal(err)
		}
	}
}

// The three queues are on three masters. One is frozen together with its replica, so that no other node replaces it:
// its queue stops, the others continue, and /readyz reports it.
func TestCluster_RedisOneMasterFrozen(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	c := startCluster(t, "rediscluster")
	// The slots of high and normal start on one master, which also has asynq:queues and the pace.
	_, third := c.owner(c.node("redis-1"), "asynq:servers")
	c.moveSlot(pendingOf["normal"], third)
	s := startClusterSystem(t, c, nil)
	load := s.startLoad()
	s.awaitRequests(30)

	id, master := c.owner(c.node("redis-1"), pendingOf["high"])
	frozen := []string{master, c.replicaOf(id, another(master))}
	c.freeze(frozen...)
	at := time.Now()
	for _, queue := range []string{"normal", "low"} {
		took := sentAgain(s, queue, at, at, 5*commandTimeout)
		t.Logf("%s frozen with its replica: %s goes on after %s", master, queue, took.Round(10*time.Millisecond))
	}
	for _, p := range []*program{s.dispatcher, s.worker} {
		neverReady(s, p, 20)
	}
	for range 5 { // the first command to the frozen node has timed out: no other one does
		for _, queue := range []string{"normal", "low"} {
			now := time.Now()
			sentAgain(s, queue, now, now, commandTimeout)
		}
	}
	c.thaw(frozen...)
	thawed := time.Now()
	took := sentAgain(s, "high", thawed, thawed, 5*commandTimeout)
	t.Logf("thawed: high goes on after %s", took.Round(10*time.Millisecond))
	soonReady(s)
	load.finish()
}

// A queue's slot moves to another master while the queue has tasks, as redis-cli --cluster reshard moves it. Until it has moved,
// Redis refuses most scripts of that queue. The other queue of the same master continues, and none of its tasks is lost: a
// pipeline of both queues that is sent again would take tasks twice.
func TestCluster_RedisSlotMoves(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	c := startCluster(t, "rediscluster")
	// The slots of high and normal start on one master.
	_, source := c.owner(c.node("redis-1"), pendingOf["normal"])
	if _, other := c.owner(c.node("redis-1"), pendingOf["high"]); other != source {
		t.Fatalf("high is on %s, normal on %s", other, source)
	}
	_, target := c.owner(c.node("redis-1"), pendingOf["low"])
	s := startClusterSystem(t, c, nil)
	load := s.startLoad()
	s.awaitRequests(30)

	from, to := c.node(source), c.node(target)
	slot := from.ClusterKeySlot(t.Context(), pendingOf["normal"]).Val()
	set := func(node *redis.Client, state, id string) {
		if err := node.Do(t.Context(), "CLUSTER", "SETSLOT", slot, state, id).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set(to, "IMPORTING", from.ClusterMyID(t.Context()).Val())
	set(from, "MIGRATING", to.ClusterMyID(t.Context()).Val())
	for range 10 {
		now := time.Now()
		sentAgain(s, "high", now, now, 5*commandTimeout)
	}
	host, port, err := net.SplitHostPort(to.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	for {
		keys, err := from.ClusterGetKeysInSlot(t.Context(), int(slot), 100).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		command := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
		for _, key := range keys {
			command = append(command, key)
		}
		if err := from.Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	c.moveSlot(pendingOf["normal"], target)
	moved := time.Now()
	t.Logf("%s moved from %s to %s: normal goes on after %s", pendingOf["normal"], source, target,
		sentAgain(s, "normal", moved, moved, 20*commandTimeout).Round(10*time.Millisecond))
	load.finish()
	if n := s.dispatcher.metric("outbox_rescued_total", "leftover"); n != 0 {
		t.Errorf("%v tasks were taken and lost by their worker", n)
	}
}

// replicaOf returns the name of the replica of the master with this id.
func (c *cluster) replicaOf(id, ask string) string {
	c.t.Helper()
	for line := range strings.Lines(c.node(ask).ClusterNodes(c.t.Context()).Val()) {
		// id ip:port@bus flags master …
		if fields := strings.Fields(line); len(fields) > 3 && fields[3] == id {
			addr, _, _ := strings.Cut(fields[1], "@")
			return c.nodeAt(addr, redisNodes...)
		}
	}
	c.t.Fatalf("the master %s has no replica", id)
	return ""
}

// readyz returns the status of the program's /readyz.
func readyz(t *testing.T, p *program) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := httpClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// neverReady checks n times that the program is not ready.
func neverReady(s *system, p *program, n int) {
	s.t.Helper()
	ready := 0
	for range n {
		if readyz(s.t, p) == http.StatusOK {
			ready++
		}
	}
	if ready > 0 {
		s.t.Errorf("%d of %d answers of the %s's /readyz were 200 while a queue could not be written to", ready, n, p.name)
	}
}

// soonReady waits until dispatcher and worker are ready.
func soonReady(s *system) {
	s.t.Helper()
	eventually(s.t, func() error {
		for _, p := range []*program{s.dispatcher, s.worker} {
			if code := readyz(s.t, p); code != http.StatusOK {
				return fmt.Errorf("%s answers %d on /readyz", p.name, code)
			}
		}
		return nil
	})
}
