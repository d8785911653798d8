package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store"
	"email-gateway/shared/store/event"
	filestore "email-gateway/shared/store/file"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/template"
	"email-gateway/shared/store/webhook"
	"email-gateway/shared/waittest"
)

// startWhollyBehind creates a gateway that reaches its database through a proxy with every statement.
func startWhollyBehind(t *testing.T) (*gateway, *storetest.Proxy) {
	t.Helper()
	d := storetest.New(t)
	w := storetest.NewProxy(t, d)
	through, err := store.Open(t.Context(), w.URL, store.Options{StatementTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(through.Close)
	accepter := through.NewAccepter()
	t.Cleanup(accepter.Close)
	return startOn(t, d, func(p *httpapi.Params) {
		p.Store, p.Accepter, p.Feed, p.Templates = through, accepter, event.New(through.DB()), template.New(through.DB())
		p.Files, p.Webhooks = filestore.New(through.DB()), webhook.New(through.DB())
	}), w
}

// The connection to Postgres is lost right after the commit of a change. The response shows the change: no later statement can
// fail and hide it, or a secret that is shown once.
func TestCommitted_DatabaseIsLost(t *testing.T) {
	t.Parallel()
	g, w := startWhollyBehind(t)
	hook, secret := g.webhook(t, `{"url": "https://erp.acme.example/hooks"}`)
	hooks := webhooksPath + "/" + hook
	test := g.post(t, hooks+"/test", "").Header.Get("Location")
	mail, mailing := "/v1/email/"+g.accept(t, emailBody(nil)), "/v1/mailings/"+g.mail(t, mailingForm())
	_, letters := g.makeDeadLetters(t, 3)
	tomorrow := time.Now().UTC().Add(24 * time.Hour).Truncate(time.Second).Format(time.RFC3339)
	for _, tt := range []struct {
		call
		last   string // the statement that commits; "" = COMMIT
		status int
		shows  string // a part of the answer
	}{
		{call{Method: http.MethodPost, Path: webhooksPath, Body: `{"url": "https://erp.acme.example/v2"}`}, "INSERT INTO webhook_endpoints", http.StatusCreated, `"secret":"whsec_`},
		{call{Method: http.MethodPost, Path: hooks + "/rotate-secret"}, "UPDATE webhook_endpoints SET\n    old_secret_enc", http.StatusOK, `"secret":"whsec_`},
		{call{Method: http.MethodPatch, Path: hooks, Body: `{"url": "https://erp.acme.example/v3"}`}, "", http.StatusOK, `"url":"https://erp.acme.example/v3"`},
		{call{Method: http.MethodPost, Path: hooks + "/test"}, "", http.StatusAccepted, `"type":"webhook.test"`},
		{call{Method: http.MethodPost, Path: test + "/retry"}, "", http.StatusAccepted, `"status":"RETRYING"`},
		{call{Method: http.MethodPost, Path: hooks + "/replays", Body: `{"failed": true}`}, "", http.StatusAccepted, `"status":"RUNNING"`},
		{call{Method: http.MethodPost, Path: hooks + "/disable"}, "", http.StatusOK, `"disabledReason":"REQUESTED"`},
		{call{Method: http.MethodPost, Path: hooks + "/enable"}, "", http.StatusOK, `"status":"ENABLED"`},
		{call{Method: http.MethodPatch, Path: mail, Body: `{"sendAt": "` + tomorrow + `"}`}, "", http.StatusOK, `"sendAt":"` + tomorrow},
		{call{Method: http.MethodPost, Path: mail + "/cancel"}, "", http.StatusOK, `"type":"CANCELLED"`},
		{call{Method: http.MethodPost, Path: mail + "/retry"}, "", http.StatusAccepted, `"type":"REPLAYED"`},
		{call{Method: http.MethodPost, Path: "/v1/dead-letters/" + letters[0] + "/retry"}, "", http.StatusAccepted, `"type":"REPLAYED"`},
		{call{Method: http.MethodPost, Path: "/v1/dead-letters/" + letters[1] + "/discard"}, "", http.StatusOK, `"resolution":"discarded"`},
		{call{Method: http.MethodPost, Path: "/v1/dead-letters/retry", Body: `{}`}, "", http.StatusAccepted, `"matched":1`},
		{call{Method: http.MethodPost, Path: "/v1/suppressions", Body: `{"address": "Ana@example.com", "note": "by phone"}`}, "", http.StatusOK, `"note":"by phone"`},
		{call{Method: http.MethodPost, Path: "/v1/templates", Body: `{"name": "hello", "subject": "Olá", "text": "Olá"}`}, "", http.StatusCreated, `"version":1`},
		{call{Method: http.MethodPost, Path: "/v1/templates/hello/publish", Body: `{"version": 1}`}, "", http.StatusOK, `"published":true`},
		{call{Method: http.MethodPost, Path: mailing + "/pause"}, "", http.StatusOK, `"status":"PAUSED"`},
		{call{Method: http.MethodPost, Path: mailing + "/resume"}, "", http.StatusOK, `"status":"QUEUED"`},
	} {
		last := tt.last
		if last == "" {
			last = storetest.Commit
		}
		g.do(t, call{Path: "/v1/emails"}) // the key is cached from here on, and broken connections have left the pool
		w.CutAfter(last, 1)
		r := g.do(t, tt.call)
		if !w.Stopped() {
			t.Errorf("%s %s: the committing statement did not run", tt.Method, tt.Path)
		}
		w.Restart()
		if r.Status != tt.status || !strings.Contains(r.Body, tt.shows) || strings.Contains(r.Body, secret) {
			t.Errorf("%s %s: %d %s, want %d with %s", tt.Method, tt.Path, r.Status, r.Body, tt.status, tt.shows)
		}
	}
}

// The company's searches take every slot that becomes free. The new secret is shown nevertheless, because the response needs
// no second slot.
func TestCommitted_SlotsAreBusy(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id, _ := g.webhook(t, `{"url": "https://erp.acme.example/hooks"}`)
	g.hold(t, `SET LOCAL idle_in_transaction_session_timeout = 0; LOCK TABLE dead_letters IN ACCESS EXCLUSIVE MODE`)
	ctx, leave := context.WithCancel(t.Context())
	var searching sync.WaitGroup
	defer searching.Wait()
	defer leave()
	var sent atomic.Int64
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent.Add(1) }})
	search := func() { _, _ = g.try(t, call{Path: "/v1/dead-letters", Context: traced}) }
	for range 3 {
		searching.Go(search)
	}
	awaitLocked(t, g, 3)
	release := g.hold(t, `SELECT FROM webhook_endpoints WHERE id = $1 FOR UPDATE`, uuid.MustParse(id))
	rotated := make(chan reply, 1)
	searching.Go(func() {
		r, _ := g.try(t, call{Method: http.MethodPost, Path: webhooksPath + "/" + id + "/rotate-secret"})
		rotated <- r
	})
	awaitLocked(t, g, 4)
	for range 12 { // they wait for the rotation's slot, and then for each other's slots
		searching.Go(func() {
			for ctx.Err() == nil {
				search()
			}
		})
	}
	waittest.Until(t, "the searches run", func() bool { return sent.Load() >= 3+12 })
	release()
	r := <-rotated
	if r.Status != http.StatusOK || r.json(t)["secret"] == nil {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// Responses of Postgres to the statement that commits are lost. The driver runs it again, and it makes the change once. If every
// response is lost, the api reports that the change may have been made.
func TestCommitted_LostAnswers(t *testing.T) {
	t.Parallel()
	g, w := startWhollyBehind(t)
	for _, times := range []int{1, 2, 50} {
		id, first := g.webhook(t, `{"url": "https://erp.acme.example/hooks"}`)
		endpoints := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM webhook_endpoints`)
		for _, tt := range []struct {
			path, body, lost string
			status, made     int
		}{
			{webhooksPath, `{"url": "https://erp.acme.example/v2"}`, "INSERT INTO webhook_endpoints", http.StatusCreated, 1},
			{webhooksPath + "/" + id + "/rotate-secret", "", "UPDATE webhook_endpoints SET\n    old_secret_enc", http.StatusOK, 0},
		} {
			w.LoseAnswers(tt.lost, times)
			r := g.post(t, tt.path, tt.body)
			if w.LoseAnswers("", 0) == times {
				t.Errorf("%s: the proxy dropped no response", tt.path)
			}
			endpoints += tt.made
			if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM webhook_endpoints`); n != endpoints {
				t.Errorf("%s: %d endpoints, want %d", tt.path, n, endpoints)
			}
			switch {
			case r.Status == tt.status:
				shown, _ := r.json(t)["id"].(string)
				if secret := decryptedSecret(t, g, "secret_enc", shown); secret != r.json(t)["secret"] {
					t.Errorf("%s: the stored secret differs from the shown one", tt.path)
				}
			case times < 50 || r.Status != http.StatusServiceUnavailable || !strings.Contains(r.problem(t).Detail, "may have been made"):
				t.Errorf("%s, %d responses lost: %d %s", tt.path, times, r.Status, r.Body)
			}
		}
		if old := decryptedSecret(t, g, "old_secret_enc", id); old != first {
			t.Errorf("%d responses lost: the replaced secret does not sign any more", times)
		}
	}
}

// decryptedSecret decrypts a stored secret of an endpoint.
func decryptedSecret(tb testing.TB, g *gateway, column, endpoint string) string {
	tb.Helper()
	var encrypted []byte
	if err := g.SQL.QueryRowContext(tb.Context(), `SELECT `+column+` FROM webhook_endpoints WHERE id = $1`, endpoint).Scan(&encrypted); err != nil {
		tb.Fatal(err)
	}
	text, err := g.Ring.Open(g.Company, encrypted)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}
