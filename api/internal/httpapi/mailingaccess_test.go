package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store/tenant"
)

func TestMailing_OtherCompanys(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.mail(t, mailingForm())
	key := g.newKey(t, g.Database.Company(t), nil).String()
	for _, path := range []string{"", "/entries", "/rows", "/rows?format=csv", "/verdicts"} {
		if r := g.do(t, call{Path: "/mailings/" + id + path, Key: key}); r.Status != http.StatusNotFound || r.problem(t).Code != "NOT_FOUND" {
			t.Errorf("%s: %d %s", path, r.Status, r.Body)
		}
	}
	for _, step := range []string{"start", "pause", "resume", "cancel", "retry-failed"} {
		if r := g.do(t, call{Method: http.MethodPost, Path: "/mailings/" + id + "/" + step, Key: key}); r.Status != http.StatusNotFound {
			t.Errorf("%s: %d %s", step, r.Status, r.Body)
		}
	}
	page, _ := g.do(t, call{Path: "/mailings", Key: key}).json(t)["mailings"].([]any)
	if status := g.do(t, call{Path: "/mailings/" + id}).json(t)["status"]; len(page) > 0 || status != "QUEUED" {
		t.Errorf("%v, %v", page, status)
	}
	if r := g.do(t, call{Path: "/mailings/x"}); r.Status != http.StatusNotFound {
		t.Errorf("no id: %d", r.Status)
	}
}

func TestMailing_WithoutRabbitMQ(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.mail(t, mailingForm())
	off := startOn(t, g.Database, func(p *httpapi.Params) { p.HasRabbitMQ, p.Tokens = false, nil })
	key := g.Key.String()
	c := uploadCall(t, mailingForm(), nil)
	c.Key = key
	for _, c := range []call{
		c,
		{Method: http.MethodPost, Path: "/mailings/" + id + "/start", Key: key},
		{Method: http.MethodPost, Path: "/v1/mailings/" + id + "/resume", Key: key},
		{Method: http.MethodPost, Path: "/mailings/" + id + "/retry-failed", Key: key},
		{Method: http.MethodPatch, Path: "/mailings/" + id, Body: `{"sendAt": "2020-01-01T00:00:00Z"}`, Key: key},
	} {
		if r := off.do(t, c); r.Status != http.StatusServiceUnavailable || r.problem(t).Code != "BULK_DISABLED" || !strings.Contains(r.Body, "RABBITMQ_URL") {
			t.Errorf("%s: %d %s", c.Path, r.Status, r.Body)
		}
	}
	for _, c := range []call{
		{Path: "/mailings/" + id, Key: key},
		{Path: "/mailings", Key: key},
		{Method: http.MethodPost, Path: "/mailings/" + id + "/pause", Key: key},
		{Method: http.MethodPost, Path: "/mailings/" + id + "/cancel", Key: key},
	} {
		if r := off.do(t, c); r.Status != http.StatusOK {
			t.Errorf("%s: %d %s", c.Path, r.Status, r.Body)
		}
	}
}

func TestMailing_Scopes(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.mail(t, mailingForm())
	with := func(scopes ...string) string {
		return g.newKey(t, g.Company, func(k *tenant.APIKey) { k.Scopes = scopes }).String()
	}
	reads, writes := with(apikey.MailingsRead), with(apikey.MailingsWrite)
	for _, path := range []string{"/mailings", "/mailings/" + id, "/mailings/" + id + "/entries", "/mailings/" + id + "/rows", "/v1/mailings/" + id + "/verdicts"} {
		if a, b := g.do(t, call{Path: path, Key: reads}), g.do(t, call{Path: path, Key: writes}); a.Status != http.StatusOK || b.Status != http.StatusForbidden {
			t.Errorf("%s: %d and %d", path, a.Status, b.Status)
		}
	}
	for _, step := range []string{"start", "pause", "resume", "cancel", "retry-failed"} {
		c := call{Method: http.MethodPost, Path: "/mailings/" + id + "/" + step, Key: reads}
		if r := g.do(t, c); r.Status != http.StatusForbidden {
			t.Errorf("%s: %d", step, r.Status)
		}
	}
	if r := g.do(t, call{Method: http.MethodPatch, Path: "/mailings/" + id, Body: `{"sendAt": "2020-01-01T00:00:00Z"}`, Key: reads}); r.Status != http.StatusForbidden {
		t.Errorf("move: %d", r.Status)
	}
	c := uploadCall(t, mailingForm(), nil)
	c.Key = reads
	if r := g.do(t, c); r.Status != http.StatusForbidden {
		t.Errorf("upload: %d", r.Status)
	}
}

// A body with a too large Content-Length is rejected before it is sent.
func TestMailing_TooLarge(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_, err = fmt.Fprintf(connection, "POST /mailings HTTP/1.1\r\nHost: gateway\r\nX-API-Key: %s\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n", g.Key, 600<<20)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(text), "FILE_TOO_LARGE") {
		t.Errorf("%d %s", response.StatusCode, text)
	}
}
