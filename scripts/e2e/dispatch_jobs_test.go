package e2e_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/lib/pq"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/store/storetest"
)

// awaitPublished waits until the jobs with these ids are PUBLISHED.
func awaitPublished(s *system, ids []string) {
	s.t.Helper()
	eventually(s.t, func() error {
		var left int
		err := s.db.SQL.QueryRowContext(s.t.Context(), `SELECT count(*) FROM email_outbox WHERE status <> 'PUBLISHED' AND id = ANY ($1::uuid[])`, pq.Array(ids)).Scan(&left)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d of %d jobs are not PUBLISHED: %s", left, len(ids), s.statusCounts())
		}
		return err
	})
}

// unfinishedJobs returns the ids of the rows for RabbitMQ that are not published.
func unfinishedJobs(s *system) (ids []string) {
	s.t.Helper()
	err := s.db.SQL.QueryRowContext(s.t.Context(), `SELECT array_agg(id::text) FROM email_outbox WHERE target <> 'email:send' AND status = 'PENDING'`).Scan(pq.Array(&ids))
	if err != nil {
		s.t.Fatal(err)
	}
	return ids
}

// One of two dispatchers crashes, or freezes, between its lease of jobs for RabbitMQ and their publishing. The lease is
// one of 8 s, the other dispatcher publishes them after it, and each job is done once.
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
			func() { importPeople(s, imported, imported+people); imported += people },
			func() { awaitImports(s); peopleAreComplete(s, 0, imported) },
		},
		"mailing": {
			func() { s.mail(fmt.Sprintf("people%d.csv", mailings), sheet, nil); mailings++ },
			func() {
				eventually(t, func() error {
					if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM mailings WHERE status <> 'COMPLETED' OR sent <> accepted"); n > 0 {
						return fmt.Errorf("%d mailings are not COMPLETED: %s", n, s.statusCounts())
					}
					return nil
				})
			},
		},
	}
	for kind, k := range kinds {
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
				ids := unfinishedJobs(s)
				if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE target <> 'email:send' AND status = 'PENDING' AND next_at = enqueued_at + interval '8 s'"); n != len(ids) || n == 0 {
					t.Errorf("%d of %d jobs are leased", n, len(ids))
				}
				s.dispatcher.signal(syscall.SIGCONT)
				awaitPublished(s, ids)
				if fault == "STOP" {
					faulty.signal(syscall.SIGCONT)
					faulty.stop()
				}
				k.handled()
			})
		}
	}
}
