package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store/storetest"
)

// One of two workers cannot use Postgres, because its link is cut or its login is refused. It takes no task, so that the
// other one sends all new emails, and it takes tasks again when the fault is over.
func TestWorkerWithoutPostgres(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*system) (url string, begin, end func()){
		"link cut": func(s *system) (string, func(), func()) {
			proxy := storetest.NewProxy(s.t, s.db)
			return proxy.URL, func() { proxy.Stop(); proxy.CutAll() }, proxy.Restart
		},
		"login refused": func(s *system) (string, func(), func()) {
			role := "worker_" + strings.ReplaceAll(uuid.NewString(), "-", "")
			s.db.Run(s.t, `CREATE ROLE `+role+` LOGIN SUPERUSER`)
			s.t.Cleanup(func() {
				_, _ = s.db.SQL.ExecContext(context.WithoutCancel(s.t.Context()), `DROP ROLE `+role)
			})
			u, err := url.Parse(s.db.URL)
			if err != nil {
				s.t.Fatal(err)
			}
			u.User = url.User(role)
			return u.String(), func() {
				s.db.Run(s.t, `ALTER ROLE `+role+` NOLOGIN`)
				s.db.Run(s.t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '`+role+`'`)
			}, func() { s.db.Run(s.t, `ALTER ROLE `+role+` LOGIN`) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSystem(t, nil)
			url, begin, end := fault(s)
			cut := startProgram(t, "worker", s.env, map[string]string{"DATABASE_URL": url, "LOG_LEVEL": "debug"})
			ready := func(want int) func() error {
				return func() error {
					if status := readyz(t, cut); status != want {
						return fmt.Errorf("readyz of the worker: %d, want %d", status, want)
					}
					return nil
				}
			}
			eventually(t, ready(http.StatusOK))
			s.sendTen()
			// The fault outlasts the lease of a claim: an email that SES has accepted, but whose row does not say so yet, would
			// be sent again.
			s.awaitAll(storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox"), "SENT")
			begin()
			eventually(t, ready(http.StatusServiceUnavailable))
			eventually(t, func() error {
				s.sendTen() // until the worker has taken a task, whose statement fails
				if failed(cut) == 0 {
					return errors.New("the worker without Postgres takes no task")
				}
				return nil
			})
			first := failed(cut)
			s.sendTen()
			if n := failed(cut); n > first {
				t.Errorf("%d tasks failed on the worker without Postgres after its first %d", n-first, first)
			}
			end()
			eventually(t, ready(http.StatusOK))
			s.worker.stop()
			s.sendTen() // by the worker that had the fault
			n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox")
			s.awaitAll(n, "SENT")
			s.sentOnce(n)
		})
	}
}

// One worker loses Postgres while SES works on its emails, for longer than their leases. SES accepts them, and the dispatcher
// records what the worker has kept in Redis, so that none is sent again, flagged or failed, also if the worker is killed.
func TestWorkerWithoutPostgres_InFlight(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"back later": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSystem(t, map[string]string{"SES_FEEDBACK_WINDOW": "0s"})
			s.worker.stop()
			proxy := storetest.NewProxy(t, s.db)
			cut := startProgram(t, "worker", s.env, map[string]string{"DATABASE_URL": proxy.URL})
			slowSES(s.t, s.ses, 5000)
			const n = 8
			for i := range n {
				s.send(fmt.Sprintf("um%d@cliente.example", i), func(body map[string]any) {
					if i%2 == 0 {
						body["delivery"] = "at_most_once"
					}
				})
			}
			s.awaitRequests(n)
			proxy.Stop()
			proxy.CutAll()
			s.worker = startProgram(t, "worker", s.env)
			client := s.redisClient()
			eventually(t, func() error {
				kept, err := client.Keys(t.Context(), "email-gateway:result:*").Result()
				if err == nil && len(kept) < n {
					err = fmt.Errorf("the worker without Postgres keeps %d results of %d", len(kept), n)
				}
				return err
			})
			if in := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'PROCESSING'"); in != n {
				t.Fatalf("%d of %d emails are in flight: %s", in, n, s.statusCounts())
			}
			if killed {
				cut.kill()
			}
			s.awaitAll(n, "SENT")
			if !killed {
				proxy.Restart()
				eventually(t, func() error {
					if recorded := strings.Count(cut.logged(), "a dispatcher has recorded the attempt's result"); recorded < n {
						return fmt.Errorf("the worker knows of %d recorded results", recorded)
					}
					return nil
				})
			}
			s.sentOnce(n)
			if flagged := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE possible_duplicate OR outcome_unknown"); flagged > 0 {
				t.Errorf("%d emails are flagged", flagged)
			}
			for _, key := range client.Keys(t.Context(), "email-gateway:result:*").Val() {
				// A worker that was killed leaves the dispatcher's mark.
				if value := client.Get(t.Context(), key).Val(); !killed || value != "recorded" {
					t.Errorf("still in Redis: %s, %s", key, value)
				}
			}
		})
	}
}

// failed returns how many tasks the worker has not completed. It logs them at the level debug.
func failed(worker *program) int {
	log := worker.logged()
	return strings.Count(log, `"task failed"`) + strings.Count(log, `"task not completed"`)
}
