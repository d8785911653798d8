package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/apikey"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
)

// hold runs a statement in another session and returns a function that ends its transaction.
func (g *gateway) hold(tb testing.TB, statement string, args ...any) (release func()) {
	tb.Helper()
	tx, err := g.SQL.BeginTx(context.WithoutCancel(tb.Context()), nil)
	if err != nil {
		tb.Fatal(err)
	}
	release = sync.OnceFunc(func() { _ = tx.Rollback() })
	tb.Cleanup(release)
	if _, err := tx.ExecContext(tb.Context(), statement, args...); err != nil {
		tb.Fatal(err)
	}
	return release
}

// sendOthers sends emails of another company, one after the other.
func sendOthers(tb testing.TB, g *gateway, key apikey.Key, n int) {
	tb.Helper()
	for range n {
		if r := g.do(tb, call{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(nil), Key: key.String()}); r.Status != http.StatusAccepted {
			tb.Errorf("another company's email: %d %s", r.Status, r.Body)
		}
	}
}

// codeCount counts response codes from many goroutines.
type codeCount struct {
	mu    sync.Mutex
	codes map[string]int
}

func (f *codeCount) add(tb testing.TB, r reply) {
	tb.Helper()
	code := fmt.Sprint(r.Status)
	if r.Status >= 400 {
		code = r.problem(tb).Code
		if r.Status != http.StatusConflict || r.Header.Get("Retry-After") == "" {
			tb.Errorf("%d %s, Retry-After %q", r.Status, r.Body, r.Header.Get("Retry-After"))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.codes == nil {
		f.codes = map[string]int{}
	}
	f.codes[code]++
}

func (f *codeCount) count(code string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.codes[code]
}

// A program holds an aggregate open while 40 goroutines send it. Two of them wait, and another company's
// emails are accepted meanwhile.
func TestHeldRows_AnAggregateAndAnotherCompany(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	other := g.newKey(t, g.Database.Company(t), nil)
	release := g.hold(t, `SELECT email_gateway_take_key($1, 'interview', '42', 'REMINDER_24H', $2)`, g.Company, uuid.New())

	var senders sync.WaitGroup
	var answers codeCount
	for range 40 {
		senders.Go(func() { answers.add(t, g.send(t, emailBody(about("42", "REMINDER_24H")))) })
	}
	waittest.Until(t, "38 are refused", func() bool { return answers.count("AGGREGATE_BUSY") == 38 })
	if n := storetest.Ask[int](t, g.Database, waitingSQL); n > 2 {
		t.Errorf("%d connections wait for a lock, want at most 2", n)
	}
	sendOthers(t, g, other, 21)
	// Nor do the company's own emails about other things wait.
	g.accept(t, emailBody(about("43", "REMINDER_24H")))
	senders.Wait()
	if answers.count("AGGREGATE_IN_PROGRESS") != 2 {
		t.Errorf("%v", answers.codes)
	}
	release()
	g.accept(t, emailBody(about("42", "REMINDER_24H")))
}

// waitingSQL counts the connections that wait for a lock.
const waitingSQL = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`

// Whatever row another session locks, and however many requests of one company need it: few of them wait,
// the others are rejected, and other companies are not affected.
func TestHeldRows(t *testing.T) {
	t.Parallel()
	post := func(path, body string, header map[string]string) call {
		return call{Method: http.MethodPost, Path: path, Body: body, Header: header}
	}
	keyed := map[string]string{"Idempotency-Key": "k"}
	const useKey = `INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
		SELECT $1, $2, 'k' || n, sha256('x'), 202, '{}', gen_random_uuid(), now() + interval '1 h' FROM generate_series(0, 99) n`
	const useOne = `INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
		VALUES ($1, $2, 'k', sha256('x'), 202, '{}', gen_random_uuid(), now() + interval '1 h')`
	recipient := `{"externalId": "CUST-9", "email": "ana@example.com"}`
	for name, prepare := range map[string]func(t *testing.T, g *gateway) (release func(), misuse func(i int) call, after int){
		"an aggregate of many": func(t *testing.T, g *gateway) (func(), func(int) call, int) {
			release := g.hold(t, `SELECT email_gateway_take_key($1, 'interview', n::text, 'REMINDER_24H', gen_random_uuid()) FROM generate_series(0, 99) n`, g.Company)
			return release, func(i int) call {
				return post("/v1/email/send", emailBody(about(fmt.Sprint(i), "REMINDER_24H")), nil)
			}, http.StatusAccepted
		},
		"an email that is withdrawn": func(t *testing.T, g *gateway) (func(), func(int) call, int) {
			id := g.accept(t, emailBody(about("42", "REMINDER_24H")))
			release := g.hold(t, `SELECT email_gateway_cancel($1, 'interview', '42')`, g.Company)
			return release, func(i int) call {
				if i%2 == 0 {
					return call{Method: http.MethodPatch, Path: "/v1/email/" + id, Body: sendAt(time.Now().Add(time.Hour))}
				}
				return post("/v1/email/"+id+"/cancel", "", nil)
			}, http.StatusOK
		},
		"an email that is locked, its retry": func(t *testing.T, g *gateway) (func(), func(int) call, int) {
			id := g.accept(t, emailBody(nil))
			g.step(t, id, "cancel")
			release := g.hold(t, `SELECT FROM email_outbox WHERE id = $1 FOR UPDATE`, id)
			return release, func(int) call { return post("/v1/email/"+id+"/retry", "", nil) }, http.StatusAccepted
		},
		"an idempotency key": func(t *testing.T, g *gateway) (func(), func(int) call, int) {
			release := g.hold(t, useOne, g.Company, "POST /v1/email/send")
			return release, func(int) call { return post("/v1/email/send", emailBody(nil), keyed) }, http.StatusAccepted
		},
		"many idempotency keys": func(t *testing.T, g *gateway) (func(), func(int) call, int) {
			release := g.hold(t, useKey, g.Company, "POST /v1/email/send")
			return release, func(i int) call {
				return post("/v1/email/send", emailBody(nil), map[string]string{"Idempotency-Key": fmt.Sprint("k", i)})
			}, http.StatusAccepted
		},
		"an idempotency key past its time": func(t *testing.T, g *gateway) (func(), func(int) call, int) {
			g.keyed(t, "k", emailBody(nil))
			g.Run(t, `UPDATE idempotency_keys SET expires_at = now()`)
			release := g.hold(t, `SELECT FROM idempotency_keys FOR UPDATE`)
			return release, func(int) call { return post("/v1/email/send", emailBody(nil), keyed) }, http.StatusAccepted
		},
		"an idempotency key of recipients": func(t *testing.T, g *gateway) (func(), func(int) call, int) {
			release := g.hold(t, useOne, g.Company, "POST /v1/recipients")
			return release, func(int) call { return post("/v1/recipients", recipient, keyed) }, http.StatusAccepted
		},
		"the company's row": func(t *testing.T, g *gateway) (func(), func(int) call, int) {
			release := g.hold(t, `SELECT FROM companies WHERE id = $1 FOR UPDATE`, g.Company)
			g.accept(t, emailBody(nil)) // which needs none of it
			return release, func(int) call { return uploadCall(t, mailingForm(), nil) }, http.StatusAccepted
		},
		"a recipient": func(t *testing.T, g *gateway) (func(), func(int) call, int) {
			id := uuid.New()
			g.Run(t, `INSERT INTO recipients (id, company_id, external_id, email) VALUES ($1, $2, 'CUST-1', 'ana@example.com')`, id, g.Company)
			release := g.hold(t, `SELECT FROM recipients WHERE id = $1 FOR UPDATE`, id)
			g.accept(t, emailBody(nil)) // the api does not need the row of an email's externalId
			g.accept(t, emailBody(person("recipientId", id.String())))
			return release, func(int) call { return call{Method: http.MethodDelete, Path: "/v1/recipients/" + id.String()} }, http.StatusNoContent
		},
		"a suppression": func(t *testing.T, g *gateway) (func(), func(int) call, int) {
			g.Run(t, `INSERT INTO suppressions (company_id, address, reason) VALUES ($1, 'ana@example.com', 'MANUAL')`, g.Company)
			release := g.hold(t, `SELECT FROM suppressions FOR UPDATE`)
			return release, func(i int) call {
				return post("/v1/suppressions", fmt.Sprintf(`{"address": "ana@example.com", "note": "%d"}`, i), nil)
			}, http.StatusOK
		},
		"a filename": func(t *testing.T, g *gateway) (func(), func(int) call, int) {
			g.mail(t, mailingForm())
			release := g.hold(t, `DELETE FROM mailings`)
			return release, func(int) call { return uploadCall(t, mailingForm(), nil) }, http.StatusAccepted
		},
		"a mailing": func(t *testing.T, g *gateway) (func(), func(int) call, int) {
			id := g.mail(t, mailingForm())
			release := g.hold(t, `SELECT FROM mailings FOR UPDATE`)
			return release, func(int) call { return post("/mailings/"+id+"/pause", "", nil) }, http.StatusOK
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t, nil)
			other := g.newKey(t, g.Database.Company(t), nil)
			release, misuse, after := prepare(t, g)
			n := 24
			if name == "an aggregate of many" {
				n = 100 // more than there are tries for in the time that a request waits for one
			}
			var answers codeCount
			var all sync.WaitGroup
			accepted := make(chan struct{}) // the others' emails are
			for i := range n {
				all.Go(func() {
					for {
						answers.add(t, g.do(t, misuse(i)))
						select {
						case <-accepted:
							return
						case <-time.After(50 * time.Millisecond):
						}
					}
				})
			}
			waittest.Until(t, "a connection waits", func() bool { return storetest.Ask[int](t, g.Database, waitingSQL) > 0 })
			sendOthers(t, g, other, 9)
			close(accepted)
			all.Wait()
			for code, n := range answers.codes {
				if strings.HasSuffix(code, "00") || strings.HasSuffix(code, "02") || strings.HasSuffix(code, "04") {
					t.Errorf("%d responses are %s although the row is locked", n, code)
				}
			}
			release()
			if r := g.do(t, misuse(0)); r.Status != after {
				t.Errorf("after the row was unlocked: %d %s", r.Status, r.Body)
			}
		})
	}
}
