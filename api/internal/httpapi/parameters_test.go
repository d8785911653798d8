package httpapi_test

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
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
	const reads, others = "it reads parameters of its own", "other systems make the URL or call it"
	except := map[string]string{
		"POST /v1/email/batch": reads,
		"POST /u/{token}":      others, "POST /v1/ses/events": others,
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

// A route without a body refuses one: {"sendAt": …} must not be dropped from the start of a mailing. An empty object is none.
func TestParameters_OfEveryStep(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	steps := 0
	described(func(method, path string, o *openapi3.Operation) {
		if method != http.MethodPost || o.RequestBody != nil || path == "/u/{token}" { // mail clients post a form there
			return
		}
		steps++
		path = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, uuid.NewString())
		for body, want := range map[string]int{`{"sendAt":"2030-01-01T00:00:00Z"}`: http.StatusUnprocessableEntity, `sendAt=2030`: http.StatusBadRequest} {
			if r := g.do(t, call{Method: method, Path: path, Body: body}); r.Status != want || want == http.StatusUnprocessableEntity && r.problem(t).Errors[0].Code != "UNKNOWN_FIELD" {
				t.Errorf("%s with %s: %d %s", o.OperationID, body, r.Status, r.Body)
			}
		}
		for name, c := range map[string]call{
			"nothing": {}, "no chunk": {Reader: io.MultiReader()}, "a line end": {Body: "\n"}, "no fields": {Body: "{}"}, "null": {Body: "null"}, "none in PHP": {Body: "[]"},
			"no media type": {Body: "{}", Header: map[string]string{"Content-Type": ""}},
		} {
			c.Method, c.Path = method, path
			if r := g.do(t, c); r.Status != http.StatusNotFound {
				t.Errorf("%s with %s: %d %s", o.OperationID, name, r.Status, r.Body)
			}
		}
	})
	if steps < 15 {
		t.Errorf("only %d steps", steps)
	}
}
