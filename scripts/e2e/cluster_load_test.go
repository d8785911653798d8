package e2e_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

// load sends emails at a steady rate while a test breaks something. The api must accept all of them.
type load struct {
	s    *system
	stop chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex
	accepted int
	refused  []string
}

// loadPause is the time between two emails: one every 60 ms for each queue.
const loadPause = 20 * time.Millisecond

// queuesOf maps the prefix of the recipient addresses to a priority of each queue.
var queuesOf = map[string]int{"high": 1, "normal": 5, "low": 9}

// startLoad sends to the queues with these names, or to all, until end.
func (s *system) startLoad(queues ...string) *load {
	if len(queues) == 0 {
		queues = []string{"high", "normal", "low"}
	}
	l := &load{s: s, stop: make(chan struct{})}
	l.done.Go(func() {
		tick := time.NewTicker(loadPause)
		defer tick.Stop()
		for n := 0; ; n++ {
			l.send(queues[n%len(queues)], n)
			select {
			case <-l.stop:
				return
			case <-tick.C:
			}
		}
	})
	s.t.Cleanup(func() { l.end() })
	return l
}

func (l *load) send(queue string, n int) {
	to := fmt.Sprintf("%s-%d@example.com", queue, n)
	body := newBody(to, func(body map[string]any) {
		body["priority"] = queuesOf[queue]
		body["recipient"] = map[string]any{"externalId": to, "email": to}
	})
	status, answer, err := l.s.try(http.MethodPost, "/v1/email/send", body, nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	if status == http.StatusAccepted {
		l.accepted++
	} else {
		l.refused = append(l.refused, fmt.Sprintf("%d %s %v", status, answer, err))
	}
}

// end stops the load and returns how many emails were accepted.
func (l *load) end() int {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.done.Wait()
	return l.accepted
}

// finish ends the load and waits until every accepted email is SENT, once or with a flag that announces the
// duplicate.
func (l *load) finish() {
	l.s.t.Helper()
	n := l.end()
	if len(l.refused) > 0 {
		l.s.t.Errorf("%d requests refused, the first: %s", len(l.refused), l.refused[0])
	}
	start := time.Now()
	l.s.awaitAll(n, "SENT")
	announcedDuplicates(l.s)
	l.s.t.Logf("%d emails accepted, all SENT %s after the last", n, time.Since(start).Round(100*time.Millisecond))
}

// announcedDuplicates checks in the simulator's ledger that SES accepted every email of the database once, or more
// often if its row is flagged.
func announcedDuplicates(s *system) {
	s.t.Helper()
	rows, err := s.db.SQL.QueryContext(s.t.Context(), "SELECT id, possible_duplicate FROM email_outbox WHERE target = 'email:send'")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	taken, twice := acceptedBySES(s.ses), 0
	for rows.Next() {
		var id string
		var flagged bool
		if err := rows.Scan(&id, &flagged); err != nil {
			s.t.Fatal(err)
		}
		switch times := taken[id]; {
		case times == 0 || times > 1 && !flagged:
			s.t.Errorf("SES accepted %s %d times; possible_duplicate is %t", id, times, flagged)
		case times > 1:
			twice++
		}
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("%d emails were sent twice and are flagged", twice)
}

// sentAgain waits for the first email to the queue that was accepted after the fault and sent. It returns the time
// between from and that email, or 0 if it was sent before from, and fails if it exceeds limit.
func sentAgain(s *system, queue string, fault, from time.Time, limit time.Duration) time.Duration {
	s.t.Helper()
	var first time.Time
	eventually(s.t, func() error {
		for _, e := range s.ses.Ledger() {
			if e.Accepted && strings.HasPrefix(e.To[0], queue) && madeAfter(e.OutboxID, fault) {
				first = e.Time
				return nil
			}
		}
		return fmt.Errorf("nothing is sent to %s: %s", queue, s.statusCounts())
	})
	took := max(first.Sub(from), 0)
	if took > limit {
		s.t.Errorf("sending to %s again after %s, want %s", queue, took.Round(10*time.Millisecond), limit)
	}
	return took
}

// madeAfter reads the time in a UUIDv7, which begins with milliseconds.
func madeAfter(id string, then time.Time) bool {
	parsed, err := uuid.Parse(id)
	return err == nil && int64(binary.BigEndian.Uint64(parsed[:8])>>16) > then.UnixMilli()
}

// startClusterSystem starts the programs on a cluster, with short waits for what a failover loses.
func startClusterSystem(t *testing.T, c *cluster, env map[string]string) *system {
	t.Helper()
	all := map[string]string{"RESCUE_AFTER": "2s"}
	maps.Copy(all, c.Env)
	maps.Copy(all, env)
	return startSystem(t, all)
}
