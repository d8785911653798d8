package httpapi_test

import (
	"context"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
)

// A request that the earlier email of its aggregate answers stores its key with that response. The repetition gets the same
// bytes and creates nothing, whatever happened to the email since, and the key is refused for another body.
func TestAggregate_AnswersAndStoresTheKey(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	body := emailBody(about("42", "REMINDER_24H"))
	first := g.send(t, body)
	id, _ := first.json(t)["outboxId"].(string)
	answers := map[string]reply{}
	for _, key := range []string{"failed", "cancelled", "reused"} {
		answers[key] = g.keyed(t, key, body)
		if r := answers[key]; r.Status != http.StatusAccepted || r.Body != first.Body || r.Header.Get("Idempotent-Replayed") != "true" || r.Header.Get("Location") != first.Header.Get("Location") {
			t.Fatalf("%d %v %s, the first was %s", r.Status, r.Header, r.Body, first.Body)
		}
	}
	repeats := func(key string) {
		t.Helper()
		r, want := g.keyed(t, key, body), answers[key]
		if r.Status != want.Status || r.Body != want.Body || r.Header.Get("Idempotent-Replayed") != "true" || r.Header.Get("Location") != want.Header.Get("Location") {
			t.Errorf("%d %v %s, the first answer with the key was %s", r.Status, r.Header, r.Body, want.Body)
		}
	}
	if r := g.keyed(t, "reused", emailBody(nil)); r.Status != http.StatusUnprocessableEntity || r.problem(t).Code != "IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("with another body: %d %s", r.Status, r.Body)
	}
	g.Programs.giveUp(t, id)
	repeats("failed")
	g.step(t, id, "retry")
	g.step(t, id, "cancel")
	repeats("cancelled")
	next := g.accept(t, body)
	if next == id {
		t.Error("a cancelled email still blocks its aggregate and event type")
	}
	repeats("cancelled")
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM email_outbox`); n != 2 {
		t.Errorf("%d emails, want the first one and the next one", n)
	}
	// An expired key does not prevent that the answer is stored.
	g.Run(t, `UPDATE idempotency_keys SET expires_at = now()`)
	answers["failed"] = g.keyed(t, "failed", body)
	if r := answers["failed"]; r.json(t)["outboxId"] != next {
		t.Errorf("%d %s, want the email %s", r.Status, r.Body, next)
	}
	g.step(t, next, "cancel")
	repeats("failed")
}

// Concurrent requests with one key, which the earlier email answers, get the same bytes while its status changes.
func TestAggregate_AnswersOneKeyAtTheSameTime(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	body := emailBody(about("42", "REMINDER_24H"))
	id := g.accept(t, body)
	bodies := make([]string, 8)
	var group sync.WaitGroup
	for i := range bodies {
		group.Go(func() {
			waittest.Until(t, "there is a free slot for another request", func() bool { // slots per company are limited
				r := g.keyed(t, "k", body)
				bodies[i] = r.Body
				return r.Status == http.StatusAccepted
			})
		})
	}
	group.Go(func() { g.step(t, id, "cancel") })
	group.Wait()
	for _, answer := range bodies {
		if answer != bodies[0] {
			t.Fatalf("%q", bodies)
		}
	}
}

// While another transaction holds the key, the earlier email is not returned: the answer might not be the stored one.
func TestAggregate_AnswersWhileTheKeyIsHeld(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	body := emailBody(about("42", "REMINDER_24H"))
	g.accept(t, body)
	release := g.hold(t, `INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
		VALUES ($1, 'POST /v1/email/send', 'k', sha256('x'), 202, '{}', gen_random_uuid(), now() + interval '1 h')`, g.Company)
	if r := g.keyed(t, "k", body); r.Status != http.StatusConflict || r.problem(t).Code != "IDEMPOTENCY_IN_PROGRESS" || r.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	release()
	if r := g.keyed(t, "k", body); r.Status != http.StatusAccepted {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// An email that is cancelled between its aggregate's conflict and the answer makes room: it is not the answer.
func TestAggregate_CancelledBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	var holder uuid.UUID
	g := start(t, func(p *httpapi.Params) {
		accepter := p.Accepter
		p.Accepter = accepterFunc(func(ctx context.Context, e outbox.NewEmail) error {
			if holder != uuid.Nil {
				return &outbox.AggregateTakenError{ID: holder}
			}
			return accepter.Accept(ctx, e)
		})
	})
	body := emailBody(about("42", "REMINDER_24H"))
	first := g.accept(t, body)
	g.step(t, first, "cancel")
	holder = uuid.MustParse(first)
	if r := g.keyed(t, "k", body); r.Status != http.StatusConflict || r.problem(t).Code != "AGGREGATE_IN_PROGRESS" || r.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	holder = uuid.Nil
	if r := g.keyed(t, "k", body); r.Status != http.StatusAccepted || r.json(t)["outboxId"] == first {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// An upload that the mailing of its filename answers stores its key with that response. The repetition creates no mailing
// after that one was cancelled or failed, and the key is refused for another upload.
func TestMailing_AnswersAndStoresTheKey(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]map[string]string{"no key": nil, "another key": {"Idempotency-Key": "k-1"}} {
		for end, finish := range map[string]func(*gateway, string){
			"cancelled": func(g *gateway, id string) {
				g.do(t, call{Method: http.MethodPost, Path: "/mailings/" + id + "/cancel"})
			},
			"failed": func(g *gateway, id string) { g.Run(t, `UPDATE mailings SET status = 'FAILED' WHERE id = $1`, id) },
		} {
			t.Run(name+", "+end, func(t *testing.T) {
				t.Parallel()
				g := start(t, nil)
				made := g.upload(t, mailingForm(), first)
				id, _ := made.json(t)["mailingId"].(string)
				key := map[string]string{"Idempotency-Key": "k-2"}
				repeats := func() {
					t.Helper()
					r := g.upload(t, mailingForm(), key)
					if r.Status != http.StatusAccepted || r.Body != made.Body || r.Header.Get("Idempotent-Replayed") != "true" || r.Header.Get("Location") != made.Header.Get("Location") {
						t.Errorf("%d %v %s, the first was %s", r.Status, r.Header, r.Body, made.Body)
					}
				}
				repeats()
				if r := g.upload(t, given(part{name: "name", value: "other"}), key); r.Status != http.StatusUnprocessableEntity || r.problem(t).Code != "IDEMPOTENCY_KEY_REUSED" {
					t.Errorf("with another name: %d %s", r.Status, r.Body)
				}
				finish(g, id)
				repeats()
				if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM mailings`); n != 1 {
					t.Errorf("%d mailings", n)
				}
				if r := g.upload(t, mailingForm(), nil); r.Status != http.StatusAccepted || r.json(t)["mailingId"] == id {
					t.Errorf("without a key: %d %s", r.Status, r.Body)
				}
			})
		}
	}
}

// The database is lost before the key of a request that an earlier one answers is stored, or does not confirm it. The request
// is answered 503, and its repetition gets the one stored answer.
func TestOutage_AnswerOfAnEarlierRequest(t *testing.T) {
	t.Parallel()
	g, w := startBehind(t)
	mail, form := emailBody(about("42", "REMINDER_24H")), mailingForm()
	sent, uploaded := g.send(t, mail), g.upload(t, form, nil)
	for _, tt := range []struct {
		name, find string // the statement before the key is stored
		first      reply
		repeat     func(key string) reply
	}{
		{"email", "FULL JOIN (SELECT * FROM email_logs", sent, func(key string) reply { return g.keyed(t, key, mail) }},
		{"mailing", "SELECT id, request_sha256, answer FROM mailings", uploaded, func(key string) reply {
			return g.upload(t, form, map[string]string{"Idempotency-Key": key})
		}},
	} {
		stored := func(key string) int {
			return storetest.Ask[int](t, g.Database, `SELECT count(*) FROM idempotency_keys WHERE key = $1`, tt.name+key)
		}
		w.CutAfter(tt.find, 1)
		lost := tt.repeat(tt.name + "lost")
		if !w.Stopped() || lost.Status != http.StatusServiceUnavailable || lost.problem(t).Code != "DATABASE_UNAVAILABLE" || stored("lost") != 0 {
			t.Errorf("%s, the database is lost: %d %s, %d keys", tt.name, lost.Status, lost.Body, stored("lost"))
		}
		w.Restart()
		waittest.Until(t, "broken connections have left the pool", func() bool { return g.do(t, call{Path: "/v1/emails"}).Status == http.StatusOK })
		w.LoseAnswers(storetest.Commit, 1)
		unconfirmed := tt.repeat(tt.name + "unconfirmed")
		if w.LoseAnswers("", 0) != 0 || unconfirmed.Status != http.StatusServiceUnavailable || unconfirmed.problem(t).Code != "ACCEPT_UNKNOWN" ||
			unconfirmed.Header.Get("Retry-After") == "" || !strings.Contains(unconfirmed.problem(t).Detail, path.Base(tt.first.Header.Get("Location"))) || stored("unconfirmed") != 1 {
			t.Errorf("%s, the commit is not confirmed: %d %s, %d keys", tt.name, unconfirmed.Status, unconfirmed.Body, stored("unconfirmed"))
		}
		for _, key := range []string{"lost", "unconfirmed"} {
			var r reply
			waittest.Until(t, "the repetition meets no broken connection", func() bool {
				r = tt.repeat(tt.name + key)
				return r.Status != http.StatusServiceUnavailable
			})
			if r.Status != http.StatusAccepted || r.Body != tt.first.Body || r.Header.Get("Idempotent-Replayed") != "true" || stored(key) != 1 {
				t.Errorf("%s, repeated: %d %s, %d keys; the first was %s", tt.name, r.Status, r.Body, stored(key), tt.first.Body)
			}
		}
	}
}
