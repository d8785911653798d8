package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// startBehind creates a gateway that reaches its database through a proxy.
func startBehind(t *testing.T) (*gateway, *storetest.Proxy) {
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
	return startOn(t, d, func(p *httpapi.Params) { p.Store, p.Accepter = through, accepter }), w
}

func TestOutage_NothingIsAcceptedWithoutPostgres(t *testing.T) {
	t.Parallel()
	g, w := startBehind(t)
	id := g.accept(t, emailBody(nil)) // the key is cached from here on
	w.Stop()
	w.CutAll()
	if r := g.send(t, "{}"); r.Status != http.StatusUnprocessableEntity {
		t.Errorf("an invalid request without a database: %d %s", r.Status, r.Body)
	}
	for _, c := range []call{
		{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(nil)},
		{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(nil), Header: map[string]string{"Idempotency-Key": "k"}},
		{Path: "/v1/email/" + id},
		{Path: "/v1/emails"},
		{Method: http.MethodPost, Path: "/v1/email/" + id + "/cancel"},
		{Method: http.MethodPost, Path: "/v1/email/" + id + "/retry"},
		{Path: "/v1/emails", Key: "gw_test_unknown_secret"},
	} {
		r := g.do(t, c)
		p := r.problem(t)
		if r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" || p.Code != "DATABASE_UNAVAILABLE" && p.Code != "ACCEPT_UNKNOWN" {
			t.Errorf("%s %s: %d %s", c.Method, c.Path, r.Status, r.Body)
		}
	}
	health := g.do(t, call{Path: "/health", NoKey: true})
	if health.Status != http.StatusServiceUnavailable || health.json(t)["status"] != "unavailable" {
		t.Errorf("%d %s", health.Status, health.Body)
	}
	if r := g.do(t, call{Path: "/readyz", NoKey: true}); r.Status != http.StatusServiceUnavailable || r.Body != `{"status":"unavailable","database":{"status":"disconnected"}}` {
		t.Errorf("readyz: %d %s", r.Status, r.Body)
	}
	if !strings.Contains(g.metrics(t), `gateway_dependency_up{dependency="database"} 0`) {
		t.Errorf("metrics do not report that the database is unreachable")
	}
	if r := g.do(t, call{Path: "/livez", NoKey: true}); r.Status != http.StatusOK || r.Body != `{"status":"ok"}` {
		t.Errorf("livez: %d %s", r.Status, r.Body)
	}
	w.Restart()
	g.accept(t, emailBody(nil))
	if !strings.Contains(g.metrics(t), `gateway_dependency_up{dependency="database"} 1`) {
		t.Errorf("metrics do not report that the database is reachable again")
	}
	if n := g.rows(t); n != 2 {
		t.Errorf("%d rows, want the two that were accepted", n)
	}
}

// Postgres accepts connections but does not answer, like a hanging machine.
func TestOutage_Frozen(t *testing.T) {
	t.Parallel()
	g, w := startBehind(t)
	g.accept(t, emailBody(nil))
	thaw := w.Freeze()
	defer thaw()
	var all sync.WaitGroup
	all.Go(func() {
		if r := g.do(t, call{Path: "/health", NoKey: true}); r.Status != http.StatusServiceUnavailable {
			t.Errorf("health: %d", r.Status)
		}
	})
	all.Go(func() {
		r := g.send(t, emailBody(nil))
		if r.Status != http.StatusServiceUnavailable || r.problem(t).Code != "ACCEPT_UNKNOWN" && r.problem(t).Code != "DATABASE_UNAVAILABLE" {
			t.Errorf("send: %d %s", r.Status, r.Body)
		}
	})
	all.Go(func() {
		r := g.do(t, call{Path: "/v1/emails"})
		if r.Status != http.StatusServiceUnavailable || r.problem(t).Code != "DATABASE_UNAVAILABLE" {
			t.Errorf("list: %d %s", r.Status, r.Body)
		}
	})
	all.Wait()
	thaw()
	g.accept(t, emailBody(nil))
}

// The response to a COMMIT is lost; the driver may run the statement again.
func TestOutage_LostAnswers(t *testing.T) {
	t.Parallel()
	g, w := startBehind(t)
	g.do(t, call{Path: "/v1/emails"})
	for _, key := range []string{"", "k"} {
		for _, times := range []int{1, 2, 3, 8} {
			before := g.rows(t)
			w.LoseAnswers("lost on the wire", times)
			header := map[string]string{}
			if key != "" {
				header["Idempotency-Key"] = key + strings.Repeat("x", times)
			}
			c := call{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(with("subject", "lost on the wire")), Header: header}
			r := g.do(t, c)
			if w.LoseAnswers("", 0) == times {
				t.Error("the proxy dropped no response")
			}
			t.Logf("key %q, %d lost: %d", key, times, r.Status)
			made := g.rows(t) - before
			if key != "" {
				made /= 2 // the email and its key
			}
			switch {
			case r.Status == http.StatusAccepted:
				if id, _ := r.json(t)["outboxId"].(string); made != 1 || !g.exists(t, id) || r.Header.Get("Idempotent-Replayed") != "" {
					t.Errorf("%d lost: %d rows, %v %s", times, made, r.Header, r.Body)
				}
			case r.Status == http.StatusServiceUnavailable && r.problem(t).Code == "ACCEPT_UNKNOWN":
				detail := r.problem(t).Detail
				if id, err := uuid.Parse(detail[strings.LastIndexByte(detail, ' ')+1:]); err != nil || g.exists(t, id.String()) != (made == 1) {
					t.Errorf("%d lost: %d rows, %s", times, made, r.Body)
				}
			default:
				t.Errorf("%d lost: %d %s", times, r.Status, r.Body)
			}
			if key != "" {
				if again := g.do(t, c); again.Status != http.StatusAccepted {
					t.Errorf("again: %d %s", again.Status, again.Body)
				}
				if n := (g.rows(t) - before) / 2; n != 1 {
					t.Errorf("%d responses lost, then repeated: %d emails, want 1", times, n)
				}
			}
		}
	}
}

func (g *gateway) exists(tb testing.TB, id string) bool {
	tb.Helper()
	found, err := g.Store.Exists(tb.Context(), uuid.MustParse(id))
	if err != nil {
		tb.Fatal(err)
	}
	return found
}

// The connection is interrupted and restored under load; every 202 has its row.
func TestOutage_CutUnderLoad(t *testing.T) {
	t.Parallel()
	g, w := startBehind(t)
	var mu sync.Mutex
	accepted := map[string]bool{}
	statuses := map[int]int{}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 12 {
				r := g.send(t, emailBody(nil))
				mu.Lock()
				statuses[r.Status]++
				if r.Status == http.StatusAccepted {
					id, _ := r.json(t)["outboxId"].(string)
					accepted[id] = true
				}
				if n := statuses[http.StatusAccepted]; r.Status == http.StatusAccepted && n%40 == 20 {
					w.Stop()
					w.CutAll()
					go w.Restart()
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for status := range statuses {
		if status != http.StatusAccepted && status != http.StatusServiceUnavailable {
			t.Errorf("statuses %v", statuses)
		}
	}
	for id := range accepted {
		if !g.exists(t, id) {
			t.Errorf("email %s was accepted and is not stored", id)
		}
	}
}

// An unconfirmed commit is looked up for two seconds.
func TestOutage_UnknownOutcome(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	accepter := d.Store.NewAccepter()
	t.Cleanup(accepter.Close)
	later := make(chan time.Duration, 1)
	g := startOn(t, d, func(p *httpapi.Params) {
		p.Accepter = accepterFunc(func(ctx context.Context, e outbox.NewEmail) error {
			if delay := <-later; delay > 0 {
				time.AfterFunc(delay, func() { _ = accepter.Accept(ctx, e) })
			}
			return store.ErrUnknownOutcome
		})
	})
	later <- 300 * time.Millisecond
	if r := g.send(t, emailBody(nil)); r.Status != http.StatusAccepted {
		t.Errorf("committed a little later: %d %s", r.Status, r.Body)
	}
	later <- 0
	r := g.send(t, emailBody(nil))
	if r.Status != http.StatusServiceUnavailable || r.problem(t).Code != "ACCEPT_UNKNOWN" || r.Header.Get("Retry-After") == "" {
		t.Errorf("never committed: %d %s", r.Status, r.Body)
	}
	if n := g.rows(t); n != 1 {
		t.Errorf("%d rows", n)
	}
}
