package httpapi_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// A query parameter is not dropped from a request that sends, starts or creates something: its client meant a field or a part.
func TestParameters_OfWrites(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	form := uploadCall(t, mailingForm(), nil)
	form.Path = "/mailings?start=false"
	for name, c := range map[string]call{
		"send":      {Method: http.MethodPost, Path: "/v1/email/send?sendAt=2030-01-01T00:00:00Z", Body: emailBody(nil)},
		"mailing":   form,
		"recipient": {Method: http.MethodPost, Path: "/v1/recipients?dryRun=true", Body: `{"externalId":"A","email":"ana@example.com"}`},
		"webhook":   {Method: http.MethodPost, Path: "/v1/webhooks?enabled=false", Body: `{"url":"https://example.com"}`},
		"publish":   {Method: http.MethodPost, Path: "/v1/templates/welcome/publish?locale=pt-BR", Body: `{"version":1}`},
		"resume":    {Method: http.MethodPost, Path: "/mailings/" + uuid.NewString() + "/resume?sendAt=2030-01-01T00:00:00Z"},
		"letters":   {Method: http.MethodPost, Path: "/v1/dead-letters/retry?limit=1", Body: `{}`},
	} {
		if r := g.do(t, c); r.Status != http.StatusUnprocessableEntity || r.problem(t).Code != "VALIDATION_FAILED" || r.problem(t).Errors[0].Code != "UNKNOWN_PARAMETER" {
			t.Errorf("%s: %d %s", name, r.Status, r.Body)
		}
	}
	if n := g.rows(t); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// Every other POST and PATCH is either listed here, with the reason, or refuses query parameters.
func TestParameters_OfEveryWrite(t *testing.T) {
	t.Parallel()
	const stops, reads, others = "it stops something: a parameter too many must not prevent that", "it reads parameters of its own", "other systems make the URL or call it"
	const fixed = "what it does has no options"
	except := map[string]string{
		"POST /v1/email/batch": reads, "POST /v1/templates/{name}/preview": reads,
		"POST /u/{token}": others, "POST /v1/ses/events": others,
		"POST /v1/email/{id}/cancel": stops, "POST /v1/aggregates/{type}/{id}/cancel": stops, "POST /v1/webhooks/{id}/disable": stops,
		"POST /v1/webhooks/{id}/enable": fixed, "POST /v1/webhooks/{id}/test": fixed, "POST /v1/webhooks/{id}/rotate-secret": fixed,
		"POST /v1/webhooks/{id}/deliveries/{delivery}/retry": fixed,
		"POST /mailings/{id}/pause":                          stops, "POST /mailings/{id}/cancel": stops,
		"POST /v1/mailings/{id}/pause": stops, "POST /v1/mailings/{id}/cancel": stops,
	}
	g := start(t, nil)
	for _, route := range g.Routes {
		method, path, _ := strings.Cut(route, " ")
		if _, excepted := except[route]; excepted || method != http.MethodPost && method != http.MethodPatch {
			continue
		}
		path = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, uuid.NewString())
		if r := g.do(t, call{Method: method, Path: path + "?unknown=1", Body: "{}"}); r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, "UNKNOWN_PARAMETER") {
			t.Errorf("%s: %d %s", route, r.Status, r.Body)
		}
	}
}
