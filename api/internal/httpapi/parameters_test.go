package httpapi_test

import (
	"net/http"
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
