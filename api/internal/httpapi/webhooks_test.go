package httpapi_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/standardwebhook"
	"email-gateway/shared/store/tenant"
)

const webhooksPath = "/v1/webhooks"

func (g *gateway) webhook(t testing.TB, body string) (id, secret string) {
	t.Helper()
	r := g.do(t, call{Method: http.MethodPost, Path: webhooksPath, Body: body})
	if r.Status != http.StatusCreated {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	id, secret = fmt.Sprint(r.json(t)["id"]), fmt.Sprint(r.json(t)["secret"])
	if r.Header.Get("Location") != webhooksPath+"/"+id {
		t.Errorf("Location: %s", r.Header.Get("Location"))
	}
	return id, secret
}

// An endpoint can be created, listed, changed, rotated, disabled, enabled and deleted. Its secret is
// shown by the two requests that create one, is stored encrypted, and is in no other response.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id, secret := g.webhook(t, `{"url": "https://erp.acme.example/hooks", "types": ["email.bounced", "email.deliver*"], "description": "ERP"}`)
	if _, err := standardwebhook.ParseSecret(secret); err != nil {
		t.Errorf("%s: %v", secret, err)
	}
	path := webhooksPath + "/" + id
	shown := g.do(t, call{Path: path})
	if v := shown.json(t); v["status"] != "ENABLED" || v["health"] != "ok" || v["description"] != "ERP" || v["secret"] != nil {
		t.Errorf("%s", shown.Body)
	}
	var stored []byte
	if err := g.SQL.QueryRowContext(t.Context(), `SELECT secret_enc FROM webhook_endpoints WHERE id = $1`, id).Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if bare, err := g.Ring.Open(g.Company, stored); err != nil || bare != secret || strings.Contains(string(stored), secret[10:]) {
		t.Errorf("stored: %v", err)
	}
	changed := g.do(t, call{Method: http.MethodPatch, Path: path, Body: `{"url": "https://erp.acme.example/v2", "types": []}`})
	if v := changed.json(t); changed.Status != http.StatusOK || v["url"] != "https://erp.acme.example/v2" || v["description"] != "ERP" || len(v["types"].([]any)) != 0 {
		t.Errorf("%d %s", changed.Status, changed.Body)
	}
	for _, blank := range []string{"", "\u00a0 "} {
		for _, text := range []string{"x", blank} {
			changed := g.do(t, call{Method: http.MethodPatch, Path: path, Body: `{"description": "` + text + `"}`})
			if v := changed.json(t); changed.Status != http.StatusOK || v["url"] != "https://erp.acme.example/v2" || text == "x" != (v["description"] == "x") || text != "x" && v["description"] != nil {
				t.Errorf("description %q: %d %s", text, changed.Status, changed.Body)
			}
		}
	}
	rotated := g.post(t, path+"/rotate-secret", "")
	if v := rotated.json(t); rotated.Status != http.StatusOK || v["secret"] == secret || v["previousSecretExpiresAt"] == nil {
		t.Errorf("%d %s", rotated.Status, rotated.Body)
	}
	if r := g.post(t, path+"/disable", ""); r.Status != http.StatusOK || r.json(t)["disabledReason"] != "REQUESTED" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	for refused, body := range map[string]string{"/test": "", "/replays": `{"failed":true}`} {
		if r := g.post(t, path+refused, body); r.Status != http.StatusConflict || r.problem(t).Code != "WEBHOOK_DISABLED" {
			t.Errorf("%s: %d %s", refused, r.Status, r.Body)
		}
	}
	if r := g.post(t, path+"/enable", ""); r.Status != http.StatusOK || r.json(t)["status"] != "ENABLED" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	test := g.post(t, path+"/test", "")
	if v := test.json(t); test.Status != http.StatusAccepted || v["type"] != "webhook.test" || v["status"] != "RETRYING" {
		t.Errorf("%d %s", test.Status, test.Body)
	}
	if r := g.do(t, call{Path: test.Header.Get("Location")}); r.Status != http.StatusOK || r.json(t)["id"] != test.json(t)["id"] {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.do(t, call{Path: path + "/deliveries?status=RETRYING&limit=1"}); r.Status != http.StatusOK || r.json(t)["nextCursor"] == nil {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.post(t, test.Header.Get("Location")+"/retry", ""); r.Status != http.StatusAccepted {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	for body, want := range map[string]int{
		`{"failed": true}`: http.StatusAccepted, `{"since": "2026-03-01T08:00:00Z", "until": "2026-03-01T09:00:00Z"}`: http.StatusAccepted,
		`{}`: http.StatusUnprocessableEntity, `{"since": "2026-03-01T08:00:00Z", "until": "2026-02-01T09:00:00Z"}`: http.StatusUnprocessableEntity,
		`{"failed": true, "since": "2026-03-01T08:00:00Z"}`: http.StatusUnprocessableEntity, `{"since": "yesterday"}`: http.StatusUnprocessableEntity,
	} {
		r := g.post(t, path+"/replays", body)
		if r.Status != want {
			t.Errorf("%s: %d %s", body, r.Status, r.Body)
		}
		if r.Status == http.StatusAccepted {
			if shown := g.do(t, call{Path: r.Header.Get("Location")}); shown.Status != http.StatusOK || shown.json(t)["status"] != "RUNNING" {
				t.Errorf("%d %s", shown.Status, shown.Body)
			}
		}
	}
	if r := g.do(t, call{Method: http.MethodDelete, Path: path}); r.Status != http.StatusNoContent {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.do(t, call{Path: path}); r.Status != http.StatusNotFound {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if log := g.Log.String(); strings.Contains(log, secret) || strings.Contains(log, "whsec_") {
		t.Error("the log contains a secret")
	}
}

// A request names every invalid field. Addresses that are not public are refused, unless the installation
// permits them.
func TestWebhooks_Refused(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for body, fields := range map[string]string{
		`{}`:                                               "url",
		`{"url": "http://erp.acme.example/"}`:              "url",
		`{"url": "https://127.0.0.1/"}`:                    "url",
		`{"url": "https://[::ffff:10.0.0.1]/"}`:            "url",
		`{"url": "https://localhost:8443/"}`:               "url",
		`{"url": "https://user:secret@erp.acme.example/"}`: "url",
		`{"url": "erp.acme.example", "types": ["email.nothing", "*", "email.sent"]}`:              "types[0] types[1] url",
		`{"url": "https://erp.acme.example/", "description": "` + strings.Repeat("x", 201) + `"}`: "description",
		`{"url": "https://erp.acme.example/", "secret": "whsec_x"}`:                               "secret",
	} {
		r := g.post(t, webhooksPath, body)
		if r.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", body, r.Status, r.Body)
			continue
		}
		named := map[string]bool{}
		for _, e := range r.problem(t).Errors {
			named[e.Field] = true
		}
		for _, field := range strings.Fields(fields) {
			if !named[field] {
				t.Errorf("%s: %s is not named: %s", body, field, r.Body)
			}
		}
	}
	open := startOn(t, g.Database, func(p *httpapi.Params) {
		p.WebhookPolicy.AllowPrivate, p.WebhookPolicy.Refused = true, []netip.Prefix{netip.MustParsePrefix("10.7.0.0/16")}
	})
	id, _ := open.webhook(t, `{"url": "http://127.0.0.1:9999/"}`)
	refused := `{"url": "https://10.7.0.9/"}`
	for _, c := range []call{{Method: http.MethodPost, Path: webhooksPath, Body: refused}, {Method: http.MethodPatch, Path: webhooksPath + "/" + id, Body: refused}} {
		if r := open.do(t, c); r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, "a network that the operator of this gateway refuses") {
			t.Errorf("%s: %d %s", c.Method, r.Status, r.Body)
		}
	}
}

// A company can have at most 20 endpoints, also with concurrent requests, and can list only its own.
func TestWebhooks_OfACompany(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	other := g.newKey(t, g.Database.Company(t), nil).String()
	created := make(chan int, 30)
	for range cap(created) {
		go func() {
			r, err := g.try(t, call{Method: http.MethodPost, Path: webhooksPath, Body: `{"url": "https://erp.acme.example/"}`})
			if err != nil {
				t.Error(err)
			}
			created <- r.Status
		}()
	}
	counts := map[int]int{}
	for range cap(created) {
		counts[<-created]++
	}
	if counts[http.StatusCreated] != 20 || counts[http.StatusConflict] != 10 {
		t.Errorf("%v", counts)
	}
	list := g.do(t, call{Path: webhooksPath})
	all, _ := list.json(t)["webhooks"].([]any)
	if len(all) != 20 {
		t.Errorf("%d endpoints", len(all))
	}
	first, _ := all[0].(map[string]any)
	path := webhooksPath + "/" + fmt.Sprint(first["id"])
	for _, c := range []call{
		{Path: path},
		{Method: http.MethodPatch, Path: path, Body: `{"types": []}`},
		{Method: http.MethodDelete, Path: path},
		{Method: http.MethodPost, Path: path + "/rotate-secret"},
		{Method: http.MethodPost, Path: path + "/enable"},
		{Method: http.MethodPost, Path: path + "/disable"},
		{Method: http.MethodPost, Path: path + "/test"},
		{Path: path + "/deliveries"},
		{Method: http.MethodPost, Path: path + "/replays", Body: `{"failed": true}`},
	} {
		c.Key = other
		if r := g.do(t, c); r.Status != http.StatusNotFound {
			t.Errorf("%s %s: %d %s", c.Method, c.Path, r.Status, r.Body)
		}
	}
	if r := g.do(t, call{Path: webhooksPath, Key: other}); r.Body != `{"webhooks":[]}` {
		t.Errorf("%s", r.Body)
	}
	reader := g.newKey(t, g.Company, func(k *tenant.APIKey) { k.Scopes = []string{"webhooks:read"} }).String()
	if r := g.do(t, call{Method: http.MethodDelete, Path: path, Key: reader}); r.Status != http.StatusForbidden {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}
