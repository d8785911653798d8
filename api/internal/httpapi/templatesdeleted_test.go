package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
)

// A version that one api process has cached is not found any more once another process has deleted its template: a send, a
// batch and a preview that name the version are refused.
func TestTemplates_DeletedByAnotherProcess(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	another := startOn(t, g.Database, nil)
	g.invoiceTemplate(t, "", "Fatura {{number}}")
	g.invoiceTemplate(t, "pt", "Fatura {{number}}")
	const pinned = `, "version": 1, "locale": "pt-BR"`
	preview := `{"data": ` + invoiceData + pinned + `}`
	r := g.send(t, strings.Replace(sendInvoice(""), `"name": "invoice"`, `"name": "invoice"`+pinned, 1))
	if r.Status != http.StatusAccepted || g.show(t, r.json(t)["outboxId"].(string))["template"].(map[string]any)["locale"] != "pt" {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	remove := func(query string) {
		t.Helper()
		if r := another.do(t, call{Method: http.MethodDelete, Path: "/v1/templates/invoice" + query, Key: g.Key.String()}); r.Status != http.StatusNoContent {
			t.Fatalf("%d %s", r.Status, r.Body)
		}
	}
	remove("?locale=pt")
	if r := g.template(t, http.MethodPost, "/invoice/preview", preview); r.Status != http.StatusOK || r.json(t)["locale"] != nil {
		t.Errorf("the version of the default locale is still served: %d %s", r.Status, r.Body)
	}
	remove("")
	for path, body := range map[string]string{
		"/v1/email/send":  strings.Replace(sendInvoice(""), `"name": "invoice"`, `"name": "invoice"`+pinned, 1),
		"/v1/email/batch": batchBody(strings.Replace(sendInvoice(""), `"name": "invoice"`, `"name": "invoice"`+pinned, 1)),
	} {
		r := g.post(t, path, body)
		if r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, "TEMPLATE_NOT_FOUND") {
			t.Errorf("%s: %d %s", path, r.Status, r.Body)
		}
	}
	if r := g.template(t, http.MethodPost, "/invoice/preview", preview); r.Status != http.StatusNotFound {
		t.Errorf("preview: %d %s", r.Status, r.Body)
	}
}
