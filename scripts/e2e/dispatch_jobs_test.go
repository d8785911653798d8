package e2e_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/lib/pq"

	"email-gateway/shared/crashpoint"
)

// publishedBy waits until the jobs with these ids are PUBLISHED, and returns the time from begun to the last of them.
func (s *system) publishedBy(ids []string, begun time.Time) (took time.Duration) {
	s.t.Helper()
	eventually(s.t, func() error {
		var left int
		var last time.Time
		err := s.db.SQL.QueryRowContext(s.t.Context(), `SELECT count(*) FILTER (WHERE status <> 'PUBLISHED'), coalesce(max(processed_at), now())
			FROM email_outbox WHERE id = ANY ($1::uuid[])`, pq.Array(ids)).Scan(&left, &last)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d of %d jobs are not PUBLISHED: %s", left, len(ids), s.statusCounts())
		}
		took = last.Sub(begun)
		return err
	})
	return took
}

// jobs returns the ids of the rows for RabbitMQ that are not published, and the time of their last lease.
func (s *system) jobs() (ids []string, leased time.Time) {
	s.t.Helper()
	err := s.db.SQL.QueryRowContext(s.t.Context(), `SELECT array_agg(id::text), coalesce(max(enqueued_at), 'epoch') FROM email_outbox
		WHERE target <> 'email:send' AND status = 'PENDING'`).Scan(pq.Array(&ids), &leased)
	if err != nil {
		s.t.Fatal(err)
	}
	return ids, leased
}

// One of two dispatchers crashes, or freezes, between its lease of jobs for RabbitMQ and their publishing. The other
// one publishes them within 10 s, plus what that takes without a fault, and each job is done once.
func TestCrashPoints_DispatchJobs(t *testing.T) {
	t.Parallel()
	env := bulk(t, brokerURL(t))
	env["MAILING_STALE_AFTER"] = "10m" // no other job is made for the mailing
	s := startSystem(t, env)
	if _, err := crashPrograms(); err != nil { // building them takes longer than the other dispatcher should be frozen
		t.Fatal(err)
	}
	const people = 5
	sheet := newSpreadsheet(t, 5)
	imported, mailings := 0, 0
	kinds := map[string]struct{ accept, handled func() }{
		"recipients": {
			func() { s.importPeople(imported, imported+people); imported += people },
			func() { s.awaitImports(); s.peopleAreComplete(0, imported) },
		},
		"mailing": {
			func() { s.mail(fmt.Sprintf("people%d.csv", mailings), sheet, nil); mailings++ },
			func() {
				eventually(t, func() error {
					if n := s.count("SELECT count(*) FROM mailings WHERE status <> 'COMPLETED' OR sent <> accepted"); n > 0 {
						return fmt.Errorf("%d mailings are not COMPLETED: %s", n, s.statusCounts())
					}
					return nil
				})
			},
		},
	}
	for kind, k := range kinds {
		s.dispatcher.freeze()
		k.accept()
		ids, _ := s.jobs()
		begun := time.Now()
		s.dispatcher.signal(syscall.SIGCONT)
		undisturbed := s.publishedBy(ids, begun)
		k.handled()
		for _, fault := range []string{"KILL", "STOP"} {
			t.Run(kind+"/"+fault, func(t *testing.T) {
				s.dispatcher.freeze() // the other one finds the jobs
				k.accept()
				change := map[string]string{}
				if fault == "STOP" {
					change["CRASH_WITH"] = "STOP"
				}
				faulty := s.startCrashing("dispatcher", crashpoint.DispatchTaken, 1, change)
				if fault == "STOP" {
					faulty.awaitFreeze(crashpoint.DispatchTaken)
				} else {
					faulty.awaitCrash(crashpoint.DispatchTaken)
				}
				ids, leased := s.jobs()
				if n := s.count("SELECT count(*) FROM email_outbox WHERE target <> 'email:send' AND status = 'PENDING' AND next_at > now()"); n != len(ids) || n == 0 {
					t.Errorf("%d of %d jobs are leased", n, len(ids))
				}
				thawed := time.Now() // on a busy machine the lease may have ended by then
				s.dispatcher.signal(syscall.SIGCONT)
				took := min(s.publishedBy(ids, leased), s.publishedBy(ids, thawed)+rescued)
				t.Logf("published %s after the lease, without a fault within %s", took, undisturbed)
				if took > rescuedBeside(undisturbed) {
					t.Errorf("published %s after the lease; without a fault it takes %s", took, undisturbed)
				}
				if fault == "STOP" {
					faulty.signal(syscall.SIGCONT)
					faulty.stop()
				}
				k.handled()
			})
		}
	}
}
