package httpapi_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// Every POST supports an Idempotency-Key, refuses it, or ignores it. Only those ignore it that clients may repeat: a second run
// changes nothing, or does what the README says.
func TestIdempotencyKey_OfEveryPost(t *testing.T) {
	t.Parallel()
	const supported, harmless, retries, others = "supported", "a second run is refused or changes nothing", "a second run retries what has failed again", "other systems call it"
	known := map[string]string{
		"POST /v1/email/send": supported, "POST /v1/email/batch": supported, "POST /v1/recipients": supported, "POST /v1/webhooks": supported,
		"POST /mailings": supported, "POST /v1/mailings": supported,
		"POST /v1/files": harmless, "POST /v1/suppressions": harmless, "POST /v1/templates": harmless, "POST /v1/templates/{name}/publish": harmless,
		"POST /v1/templates/{name}/preview": harmless, "POST /v1/email/{id}/cancel": harmless, "POST /v1/email/{id}/retry": retries,
		"POST /v1/aggregates/{type}/{id}/cancel": harmless, "POST /v1/dead-letters/{id}/retry": retries, "POST /v1/dead-letters/{id}/discard": harmless,
		"POST /v1/webhooks/{id}/enable": harmless, "POST /v1/webhooks/{id}/disable": harmless, "POST /v1/webhooks/{id}/rotate-secret": harmless,
		"POST /v1/webhooks/{id}/deliveries/{delivery}/retry": retries, "POST /v1/webhooks/{id}/test": "the receiver gets a second test",
		"POST /u/{token}": others, "POST /v1/ses/events": others,
	}
	for step, effect := range map[string]string{"start": harmless, "pause": harmless, "resume": harmless, "cancel": harmless, "retry-failed": retries} {
		known["POST /mailings/{id}/"+step], known["POST /v1/mailings/{id}/"+step] = effect, effect
	}
	g := start(t, nil)
	for _, route := range g.Routes {
		method, path, _ := strings.Cut(route, " ")
		if method != http.MethodPost || known[route] == others {
			continue
		}
		path = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, uuid.NewString())
		r := g.do(t, call{Method: method, Path: path, Body: "{}", Header: map[string]string{"Idempotency-Key": "k"}})
		refused := r.Status == http.StatusBadRequest && strings.Contains(r.Body, "IDEMPOTENCY_KEY_NOT_SUPPORTED")
		if _, ok := known[route]; ok == refused {
			t.Errorf("%s: %d %s", route, r.Status, r.Body)
		}
	}
}

// A repeated creation of a webhook endpoint finds the endpoint and its secret, also if the first response was lost.
func TestIdempotencyKey_OfWebhook(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	const body = `{"url": "https://erp.acme.example/hooks", "types": ["email.bounced"]}`
	create := func(key, body, apiKey string) reply {
		return g.do(t, call{Method: http.MethodPost, Path: webhooksPath, Body: body, Key: apiKey, Header: map[string]string{"Idempotency-Key": key}})
	}
	first := create("k", body, "")
	for name, tt := range map[string]struct {
		reply
		status int
		same   bool
	}{
		"repeated":            {create("k", body, ""), http.StatusCreated, true},
		"another key":         {create("l", body, ""), http.StatusCreated, false},
		"another body":        {create("k", `{"url": "https://erp.acme.example/other"}`, ""), http.StatusUnprocessableEntity, false},
		"another company":     {create("k", body, g.newKey(t, g.Database.Company(t), nil).String()), http.StatusCreated, false},
		"not a printable key": {create("é", body, ""), http.StatusBadRequest, false},
	} {
		if tt.Status != tt.status || (tt.Body == first.Body) != tt.same || (tt.Header.Get("Idempotent-Replayed") == "true") != tt.same {
			t.Errorf("%s: %d %s, first %s", name, tt.Status, tt.Body, first.Body)
		}
	}
	if n := len(g.do(t, call{Path: webhooksPath}).json(t)["webhooks"].([]any)); n != 2 {
		t.Errorf("%d endpoints, want 2", n)
	}
}

// An endpoint that was changed since is still the result of the request that created it.
func TestIdempotencyKey_OfChangedWebhook(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	create := func(body string) reply {
		return g.do(t, call{Method: http.MethodPost, Path: webhooksPath, Body: body, Header: map[string]string{"Idempotency-Key": "k"}})
	}
	const body = `{"url": "https://erp.acme.example/hooks", "types": ["email.bounced"]}`
	first := create(body).json(t)
	change := `{"url": "https://erp.acme.example/v2", "types": [], "description": "ERP"}`
	if r := g.do(t, call{Method: http.MethodPatch, Path: webhooksPath + "/" + first["id"].(string), Body: change}); r.Status != http.StatusOK {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	r := create(body)
	if again := r.json(t); r.Status != http.StatusCreated || again["id"] != first["id"] || again["secret"] != first["secret"] || again["description"] != "ERP" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := create(change); r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, "IDEMPOTENCY_KEY_REUSED") {
		t.Errorf("the fields that it has now: %d %s", r.Status, r.Body)
	}
}
