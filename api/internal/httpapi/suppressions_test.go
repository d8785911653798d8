package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/apikey"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/unsubscribe"
)

const suppressionsPath = "/v1/suppressions"

func (g *gateway) suppress(tb testing.TB, body string) reply {
	tb.Helper()
	return g.do(tb, call{Method: http.MethodPost, Path: suppressionsPath, Body: body})
}

func (g *gateway) suppressed(tb testing.TB, query string) (addresses []string, next string) {
	tb.Helper()
	r := g.do(tb, call{Path: suppressionsPath + query})
	if r.Status != http.StatusOK {
		tb.Fatalf("%d %s", r.Status, r.Body)
	}
	page := r.json(tb)
	list, _ := page["suppressions"].([]any)
	for _, one := range list {
		fields, _ := one.(map[string]any)
		addresses = append(addresses, fmt.Sprint(fields["address"], " ", fields["reason"]))
	}
	next, _ = page["nextCursor"].(string)
	return addresses, next
}

func TestSuppressions(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for body, want := range map[string]string{
		`{"address": "Ana@Example.com"}`: "MANUAL",
		`{"address": "ana@example.com", "reason": "BOUNCE", "note": "voltou três vezes"}`: "BOUNCE",
		`{"address": "josé@exemplo.com.br"}`:                                              "",
		`{"address": "eva@ção.example", "reason": "UNSUBSCRIBE"}`:                         "UNSUBSCRIBE",
	} {
		r := g.suppress(t, body)
		if want == "" {
			if r.Status != http.StatusUnprocessableEntity || r.problem(t).Errors[0].Field != "address" {
				t.Errorf("%s: %d %s", body, r.Status, r.Body)
			}
			continue
		}
		if r.Status != http.StatusOK || r.json(t)["reason"] != want {
			t.Errorf("%s: %d %s", body, r.Status, r.Body)
		}
	}
	first, next := g.suppressed(t, "?limit=2")
	rest, end := g.suppressed(t, "?limit=2&cursor="+next)
	all := slices.Concat(first, rest)
	if want := []string{"ana@example.com BOUNCE", "ana@example.com MANUAL", "eva@xn--o-xfal.example UNSUBSCRIBE"}; !slices.Equal(all, want) || end != "" {
		t.Errorf("%v, then %q", all, end)
	}
	if got, _ := g.suppressed(t, "?address=ANA@example.com&reason=BOUNCE"); !slices.Equal(got, []string{"ana@example.com BOUNCE"}) {
		t.Errorf("by address and reason: %v", got)
	}
	g.Run(t, `UPDATE suppressions SET created_at = now() - interval '2 hours' WHERE address LIKE 'eva%'`)
	since := "?limit=1&createdAfter=" + url.QueryEscape(time.Now().Add(-time.Hour).Format(time.RFC3339))
	first, next = g.suppressed(t, since)
	second, next := g.suppressed(t, since+"&cursor="+next)
	rest, end = g.suppressed(t, since+"&cursor="+next)
	if all := slices.Sorted(slices.Values(slices.Concat(first, second, rest))); !slices.Equal(all, []string{"ana@example.com BOUNCE", "ana@example.com MANUAL"}) || end != "" {
		t.Errorf("created within the last hour: %v, then %q", all, end)
	}
	if r := g.do(t, call{Path: suppressionsPath + "?cursor=" + next}); r.Status != http.StatusUnprocessableEntity {
		t.Errorf("the cursor of another order: %d %s", r.Status, r.Body)
	}

	remove := func(query string) reply {
		return g.do(t, call{Method: http.MethodDelete, Path: suppressionsPath + query})
	}
	for query, want := range map[string]int{
		"":                                       http.StatusUnprocessableEntity,
		"?address=nobody@example.com":            http.StatusNotFound,
		"?address=ana@example.com&for=all":       http.StatusUnprocessableEntity,
		"?address=ana@example.com&reason=SPAM":   http.StatusUnprocessableEntity,
		"?address=Ana@example.com&reason=BOUNCE": http.StatusNoContent,
	} {
		if r := remove(query); r.Status != want {
			t.Errorf("DELETE %s: %d %s", query, r.Status, r.Body)
		}
	}
	if got, _ := g.suppressed(t, "?address=ana@example.com"); !slices.Equal(got, []string{"ana@example.com MANUAL"}) {
		t.Errorf("left: %v", got)
	}
}

func TestSuppressions_Refused(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	reader := g.newKey(t, g.Company, func(k *tenant.APIKey) { k.Scopes = []string{apikey.EmailsSend, apikey.EmailsRead} })
	if r := g.do(t, call{Path: suppressionsPath, Key: reader.String()}); r.Status != http.StatusForbidden {
		t.Errorf("without the scope: %d", r.Status)
	}
	for body, field := range map[string]string{
		`{}`:                 "address",
		`{"address": "ana"}`: "address",
		`{"address": "a@b.example", "reason": "X"}`:  "reason",
		`{"address": "a@b.example", "note": "a\nb"}`: "note",
		`{"address": "a@b.example", "until": "x"}`:   "until",
	} {
		r := g.suppress(t, body)
		if r.Status != http.StatusUnprocessableEntity || r.problem(t).Errors[0].Field != field {
			t.Errorf("%s: %d %s", body, r.Status, r.Body)
		}
	}
	for _, query := range []string{"?cursor=x", "?limit=0", "?reason=X", "?page=2"} {
		if r := g.do(t, call{Path: suppressionsPath + query}); r.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", query, r.Status)
		}
	}
	// Suppressions of another company are not visible and cannot be removed.
	other := g.newKey(t, g.Database.Company(t), nil)
	g.suppress(t, `{"address": "ana@example.com"}`)
	if r := g.do(t, call{Path: suppressionsPath, Key: other.String()}); strings.Contains(r.Body, "ana@") {
		t.Errorf("the list of another company is %s, want none", r.Body)
	}
	if r := g.do(t, call{Method: http.MethodDelete, Path: suppressionsPath + "?address=ana@example.com", Key: other.String()}); r.Status != http.StatusNotFound {
		t.Errorf("another company's: %d", r.Status)
	}
}

// The page asks for confirmation, the click unsubscribes, and an invalid link does nothing.
func TestUnsubscribe(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	mailing := uuid.New()
	token := unsubscribeKeys(t).Seal(unsubscribe.Link{Company: g.Company, Mailing: mailing, Address: "Ana@example.com"})
	request := func(method, token, body string) reply {
		return g.do(t, call{Method: method, Path: "/u/" + token, Body: body, NoKey: true, Header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}})
	}
	page := request(http.MethodGet, token, "")
	if page.Status != http.StatusOK || !strings.Contains(page.Body, "<form method=\"post\">") || strings.Contains(strings.ToLower(page.Body), "ana@") {
		t.Errorf("%d %s", page.Status, page.Body)
	}
	for name, want := range map[string]string{"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Robots-Tag": "noindex"} {
		if got := page.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got, _ := g.suppressed(t, ""); len(got) != 0 {
		t.Errorf("showing the page has suppressed %v", got)
	}
	for range 2 {
		if r := request(http.MethodPost, token, url.Values{"List-Unsubscribe": {"One-Click"}}.Encode()); r.Status != http.StatusOK {
			t.Errorf("%d %s", r.Status, r.Body)
		}
	}
	r := g.do(t, call{Path: suppressionsPath})
	if !strings.Contains(r.Body, `"address":"ana@example.com"`) || !strings.Contains(r.Body, `"reason":"UNSUBSCRIBE"`) || !strings.Contains(r.Body, mailing.String()) {
		t.Errorf("%s", r.Body)
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, bad := range []string{"x", token[:len(token)-2] + "AA", token + token + token + token + token} {
			if r := request(method, bad, ""); r.Status != http.StatusNotFound || !strings.Contains(r.Body, "não é válido") {
				t.Errorf("%s %.20s: %d", method, bad, r.Status)
			}
		}
	}
	if strings.Contains(g.Log.String(), token) {
		t.Error("the log contains the token")
	}
}

func TestUnsubscribe_WithoutDatabase(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	token := unsubscribeKeys(t).Seal(unsubscribe.Link{Company: g.Company, Mailing: uuid.New(), Address: "ana@example.com"})
	g.Store.Close()
	r := g.do(t, call{Method: http.MethodPost, Path: "/u/" + token, NoKey: true})
	if r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" || !strings.Contains(r.Body, "Tente de novo") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// Errors of an unsubscribe link are shown as a page in the reader's language; a client that asks for JSON gets
// the problem.
func TestUnsubscribe_ProblemsArePages(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	path := "/u/" + unsubscribeKeys(t).Seal(unsubscribe.Link{Company: g.Company, Mailing: uuid.New(), Address: "ana@example.com"})
	g.Run(t, `ALTER TABLE suppressions ADD CHECK (false)`) // an error that a retry does not resolve
	browser := map[string]string{"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "Accept-Language": "en"}
	for _, tt := range []struct {
		method, path string
		status       int
		shown        string
	}{
		{http.MethodPost, path, http.StatusInternalServerError, "You could not be unsubscribed."},
		{http.MethodPut, path, http.StatusMethodNotAllowed, "You could not be unsubscribed."},
		{http.MethodGet, path + "/", http.StatusNotFound, "This link is not valid."},
		{http.MethodGet, "/u/", http.StatusNotFound, "This link is not valid."},
	} {
		for name, header := range map[string]map[string]string{"browser": browser, "anything": {"Accept": "*/*", "Accept-Language": "en"}, "none": {"Accept-Language": "en"}} {
			r := g.do(t, call{Method: tt.method, Path: tt.path, NoKey: true, Header: header})
			if r.Status != tt.status || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") || !strings.Contains(r.Body, "<h1>"+tt.shown) ||
				r.Header.Get("Content-Security-Policy") == "" || r.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %.10s, accepting %s: %d %s", tt.method, tt.path, name, r.Status, r.Body)
			}
		}
		r := g.do(t, call{Method: tt.method, Path: tt.path, NoKey: true, Header: map[string]string{"Accept": "text/html;q=0.1, application/json"}})
		if r.Status != tt.status || r.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %.10s, accepting JSON: %d %s", tt.method, tt.path, r.Status, r.Header.Get("Content-Type"))
		}
	}
}

// A reader whose suppression is locked by another transaction is asked to retry, with a page and status 503:
// mail clients repeat a one-click unsubscribe after a 503.
func TestUnsubscribe_RowIsHeld(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	token := unsubscribeKeys(t).Seal(unsubscribe.Link{Company: g.Company, Mailing: uuid.New(), Address: "ana@example.com"})
	release := g.hold(t, `INSERT INTO suppressions (company_id, address, reason) VALUES ($1, 'ana@example.com', 'UNSUBSCRIBE')`, g.Company)
	post := call{Method: http.MethodPost, Path: "/u/" + token, NoKey: true}
	r := g.do(t, post)
	if r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" || !strings.Contains(r.Body, "Tente de novo") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	release()
	if r := g.do(t, post); r.Status != http.StatusOK {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}
