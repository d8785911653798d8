package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/store/storetest"
)

// Maximum interruption of mailing jobs and imports after the leader of their queue has failed. The failure of a
// killed node is detected immediately. A frozen one counts as down after 7.5 to 12.5 s, the net_ticktime of
// clusters.d/rabbitmq.sh; a program connected to it closes the connection after 7.5 s of silence, and can declare its
// queues when the node is down.
const (
	afterLeaderKilled = 15 * time.Second
	afterLeaderFrozen = 30 * time.Second
)

// nodeFault is a fault of the node that leads a queue.
type nodeFault struct {
	c         *cluster
	name      string
	hit, mend func(nodes ...string)
	limit     time.Duration // until the queue is used again
}

// restart stops nodes that hang, like a supervisor, and starts them again.
func (c *cluster) restart(nodes ...string) {
	c.t.Helper()
	c.kill(nodes...)
	c.start(nodes...)
}

// during breaks the queue's leader. mended ends the fault and may be called again.
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

// The leader of a queue is killed or frozen during an import of recipients and during a mailing: every recipient is
// written, and every entry of the mailing is sent once.
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
		importDuring(s, 100_000*round, fault)
		sent += mailingDuring(s, "leader-"+fault.name, fault)
		s.sentOnce(sent)
	}
}

// importDuring imports people before, during and after a fault, and measures when one who was accepted after it began
// is written.
func importDuring(s *system, first int, fault nodeFault) {
	s.t.Helper()
	next := first
	load := func(batches int) {
		for range batches {
			importPeople(s, next, next+100)
			next += 100
		}
	}
	load(30)
	mended := fault.during("recipients_queue")
	defer mended()
	start, marker := time.Now(), next
	load(1)
	goesOn(s, "import, leader "+fault.name, start, fault.limit, func() bool {
		return storetest.Ask[int](s.t, s.db, fmt.Sprintf("SELECT count(*) FROM recipients WHERE external_id = 'C-%d'", marker)) == 1
	})
	load(30)
	mended()
	load(30)
	awaitImports(s)
	peopleAreComplete(s, first, next)
}

// mailingDuring breaks the leader during a mailing, and measures when a mailing uploaded after the fault is expanded.
// It returns the number of emails of both.
func mailingDuring(s *system, name string, fault nodeFault) (sent int) {
	s.t.Helper()
	large, small := newSpreadsheet(s.t, 1_500), newSpreadsheet(s.t, 20)
	before := s.mail(name+".csv", large, nil)
	awaitExpanded(s, before, len(large.people)/3)
	mended := fault.during("mailing.jobs.process")
	defer mended()
	start := time.Now()
	after := s.mail(name+"-after.csv", small, nil)
	goesOn(s, "mailings, leader "+fault.name, start, fault.limit, func() bool { return expandedRows(s, after) > 0 })
	awaitExpanded(s, before, len(large.people)*2/3)
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

// goesOn measures when an operation that a fault has stopped continues.
func goesOn(s *system, what string, start time.Time, limit time.Duration, happens func() bool) {
	s.t.Helper()
	eventually(s.t, func() error {
		if !happens() {
			return fmt.Errorf("%s does not go on", what)
		}
		return nil
	})
	took := time.Since(start).Round(100 * time.Millisecond)
	s.t.Logf("%s goes on after %s", what, took)
	if took > limit {
		s.t.Errorf("%s goes on after %s, want %s at most", what, took, limit)
	}
}

// leader returns the node that leads a queue.
func (c *cluster) leader(queue string) string {
	c.t.Helper()
	node := c.awaitQueue(queue, "leader", 1)
	number, _, _ := strings.Cut(strings.TrimPrefix(node, "gateway-"), "@")
	return "rabbitmq-" + number
}

// awaitQueue waits until a column of rabbitmqctl list_queues names n nodes for a queue, and returns it. A node that
// was down does not answer rabbitmqctl at once.
func (c *cluster) awaitQueue(queue, column string, nodes int) (value string) {
	c.t.Helper()
	eventually(c.t, func() error {
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
