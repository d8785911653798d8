package e2e_test

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"email-gateway/shared/servertest"
	"email-gateway/shared/store/storetest"
)

const (
	// othersSend is the maximum wait of an email that was accepted after a fault, for the programs that are left.
	othersSend = 10 * time.Second
	// othersFinish is their time to send what the failed program held: its lease of 60 s on an email, one interval of
	// the rescuer, and a wait before the retry.
	othersFinish = 2 * time.Minute
	// leaseOver is longer than every lease: 60 s of an email, 8 s of a mailing's job.
	leaseOver = 65 * time.Second
	// resumes is the maximum time until a program sends again after a network cut. Connections from before the cut
	// retransmit at growing intervals: a program must not wait for them.
	resumes = 30 * time.Second
)

// Two dispatchers and three workers under load: one of each is killed, frozen, and (as root) disconnected from all
// services, each time until the others have sent what it held. Every accepted email is sent, once or with a flag that
// announces the duplicate, and every import is written.
func TestCluster_Processes(t *testing.T) {
	t.Parallel()
	needsClusters(t)
	n, missing := newNamespace(t)
	env := bulk(t, servertest.Start(t, "rabbitmq").URL)
	env["WORKER_CONCURRENCY"] = "128"
	s := startSystem(t, env)
	slowSES(s.t, s.ses, 1_000) // so that every worker holds emails whenever a fault comes
	third := startProgram(t, "worker", s.env)
	start := func(name string) *program { return startProgram(t, name, s.env) }
	if n != nil {
		start = func(name string) *program {
			return n.start(name, s.env, "DATABASE_URL", "REDIS_URL", "RABBITMQ_URL", "SES_ENDPOINT")
		}
	}
	cutDispatcher, cutWorker := start("dispatcher"), start("worker")
	load := s.startLoad()
	s.awaitRequests(50)

	type fault struct {
		name      string
		lasts     time.Duration
		hit, mend func()
	}
	faults := []fault{
		{"killed", 0, func() {
			s.dispatcher.kill()
			s.worker.kill()
		}, func() {
			s.dispatcher, s.worker = startProgram(t, "dispatcher", s.env), startProgram(t, "worker", s.env)
		}},
		{"frozen", leaseOver, func() {
			s.dispatcher.freeze()
			s.worker.freeze()
		}, func() {
			s.dispatcher.signal(syscall.SIGCONT)
			s.worker.signal(syscall.SIGCONT)
		}},
	}
	if n != nil {
		faults = append(faults, fault{"cut off", leaseOver, n.cut, n.mend})
	} else {
		t.Run("cut off", func(t *testing.T) { t.Skip(missing) })
	}
	imported := 0
	for _, fault := range faults {
		importPeople(s, imported, imported+500)
		started := time.Now()
		fault.hit()
		importPeople(s, imported+500, imported+1000)
		imported += 1000
		took := sentAgain(s, "normal", started, started, othersFinish)
		t.Logf("a dispatcher and a worker %s: the others send after %s", fault.name, took.Round(100*time.Millisecond))
		if took > othersSend {
			t.Errorf("that is more than %s", othersSend)
		}
		awaitSentFrom(s, started)
		t.Logf("a dispatcher and a worker %s: what they held is sent after %s", fault.name, time.Since(started).Round(100*time.Millisecond))
		awaitImports(s)
		<-time.After(time.Until(started.Add(fault.lasts)))
		fault.mend()
	}

	if n != nil { // only those that were cut off are left
		mended := time.Now()
		var stopping sync.WaitGroup
		for _, other := range []*program{s.dispatcher, s.worker, third} {
			stopping.Go(other.stop)
		}
		stopping.Wait()
		took := sentAgain(s, "normal", time.Now(), mended, resumes+time.Minute)
		t.Logf("the link is back: those that were cut off send after %s", took.Round(100*time.Millisecond))
		if took > resumes {
			t.Errorf("that is more than %s", resumes)
		}
	}
	load.finish()
	peopleAreComplete(s, 0, imported)
	// A stop would wait for connections from before the cut, until their packets are retransmitted.
	for _, p := range []*program{cutDispatcher, cutWorker} {
		p.kill()
	}
}

// awaitSentFrom waits, during the fault, until every email that was accepted before it is sent.
func awaitSentFrom(s *system, fault time.Time) {
	s.t.Helper()
	eventually(s.t, func() error {
		n := storetest.Ask[int](s.t, s.db, fmt.Sprintf(`SELECT count(*) FROM email_outbox WHERE target = 'email:send' AND status <> 'SENT'
			AND created_at < to_timestamp(%f)`, float64(fault.UnixMilli())/1000))
		if n > 0 {
			return fmt.Errorf("%d emails from before the fault are not sent: %s", n, s.statusCounts())
		}
		return nil
	})
	if took := time.Since(fault); took > othersFinish {
		s.t.Errorf("they are sent after %s, want %s at most", took, othersFinish)
	}
}
