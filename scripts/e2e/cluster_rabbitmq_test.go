package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// How long mailing jobs and imports may rest after the leader of their queue is gone. A node
// that is killed is noticed at once. One that is frozen is taken for down after 7.5 to 12.5 s,
// the net_ticktime of clusters.d/rabbitmq.sh; a program that was connected to it gives its
// connection up after 7.5 s of silence, and can declare its queues when the node is down.
const (
	afterLeaderKilled = 15 * time.Second
	afterLeaderFrozen = 30 * time.Second
)

// nodeFault is something that befalls the node which leads a queue.
type nodeFault struct {
	c         *cluster
	name      string
	hit, mend func(nodes ...string)
	limit     time.Duration // until the queue is used again
}

// restart ends nodes that hang, as a supervisor does, and starts them again.
func (c *cluster) restart(nodes ...string) {
	c.t.Helper()
	c.kill(nodes...)
	c.start(nodes...)
}

// during breaks the queue's leader. mended ends the fault; it may be called again.
func (f nodeFault) during(queue string) (mended func()) {
	f.c.t.Helper()
	node := f.c.leader(queue)
	f.hit(node)
	over := false
	return func() {
		if over {
			return
		}
		over = true
		f.mend(node)
		f.c.awaitQueue(queue, "online", 3) // with two replicas the next fault would stop the queue
	}
}

// The leader of a queue is killed and frozen during an import of recipients and during a
// mailing: every recipient is there, and every entry of the mailing is sent once.
func TestCluster_RabbitMQ(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	c := startCluster(t, "rabbitmq")
	env := bulk(t, c.Env["RABBITMQ_URL"])
	env["MAILING_LEAD"] = "300" // so that a mailing is many jobs, one after the other
	s := startSystem(t, env)
	startProgram(t, "worker", s.env)
	sent := 0
	for round, fault := range []nodeFault{
		{c, "killed", c.kill, c.start, afterLeaderKilled},
		{c, "frozen", c.freeze, c.restart, afterLeaderFrozen},
	} {
		s.importDuring(100_000*round, fault)
		sent += s.mailingDuring("leader-"+fault.name, fault)
		s.sentOnce(sent)
	}
}

// importDuring imports people before, during and after a fault, and measures when one who was
// accepted after its beginning is written.
func (s *system) importDuring(first int, fault nodeFault) {
	s.t.Helper()
	next := first
	load := func(batches int) {
		for range batches {
			s.importPeople(next, next+100)
			next += 100
		}
	}
	load(30)
	mended := fault.during("recipients_queue")
	defer mended()
	began, marker := time.Now(), next
	load(1)
	s.goesOn("import, leader "+fault.name, began, fault.limit, func() bool {
		return s.count(fmt.Sprintf("SELECT count(*) FROM recipients WHERE external_id = 'C-%d'", marker)) == 1
	})
	load(30)
	mended()
	load(30)
	s.awaitImports()
	s.peopleAreWhole(first, next)
}

// mailingDuring breaks the leader in the middle of a mailing, and measures when one that was
// uploaded after the fault is expanded. It returns how many emails both are.
func (s *system) mailingDuring(name string, fault nodeFault) (sent int) {
	s.t.Helper()
	large, small := newSpreadsheet(s.t, 1_500), newSpreadsheet(s.t, 20)
	before := s.mail(name+".csv", large, nil)
	s.awaitExpanded(before, len(large.people)/3)
	mended := fault.during("mailing.jobs.process")
	defer mended()
	began := time.Now()
	after := s.mail(name+"-after.csv", small, nil)
	s.goesOn("mailings, leader "+fault.name, began, fault.limit, func() bool { return s.expanded(after) > 0 })
	s.awaitExpanded(before, len(large.people)*2/3)
	mended()
	for id, sheet := range map[string]spreadsheet{before: large, after: small} {
		done := s.awaitMailing(id, "COMPLETED")
		if done.Sent != len(sheet.people) || done.Failed+done.Suppressed+done.Expired+done.Cancelled+done.Unknown+done.Queued != 0 {
			s.t.Errorf("%s: %+v, want %d sent", name, done, len(sheet.people))
		}
		sent += len(sheet.people)
	}
	return sent
}

// goesOn measures when something happens that a fault has stopped.
func (s *system) goesOn(what string, began time.Time, limit time.Duration, happens func() bool) {
	s.t.Helper()
	eventually(s.t, func() error {
		if !happens() {
			return fmt.Errorf("%s does not go on", what)
		}
		return nil
	})
	took := time.Since(began).Round(100 * time.Millisecond)
	s.t.Logf("%s goes on after %s", what, took)
	if took > limit {
		s.t.Errorf("%s goes on after %s, want %s at most", what, took, limit)
	}
}

// leader is the node that leads a queue.
func (c *cluster) leader(queue string) string {
	c.t.Helper()
	node := c.awaitQueue(queue, "leader", 1)
	number, _, _ := strings.Cut(strings.TrimPrefix(node, "gateway-"), "@")
	return "rabbitmq-" + number
}

// awaitQueue waits until a column of rabbitmqctl list_queues names so many nodes for a queue,
// and returns it. A node that was down does not answer the tool at once.
func (c *cluster) awaitQueue(queue, column string, nodes int) (value string) {
	c.t.Helper()
	seldom(c.t, func() error {
		out, err := c.tryScript("ctl", "rabbitmq-1", "list_queues", "name", column)
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			name, rest, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if value = rest; name == queue && strings.Count(value, "@") == nodes {
				return nil
			}
		}
		return fmt.Errorf("%s does not have %d nodes as %s:\n%s", queue, nodes, column, out)
	})
	return value
}
