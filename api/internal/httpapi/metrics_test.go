package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"email-gateway/api/internal/httpapi"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.accept(t, emailBody(nil))
	g.show(t, id)
	g.send(t, "{}")
	metrics := g.metrics(t)
	for _, line := range []string{
		`mailing_api_requests_total{disabled="no",method="POST",path="/v1/email/send",status="202"} 1`,
		`mailing_api_requests_total{disabled="no",method="POST",path="/v1/email/send",status="422"} 1`,
		`mailing_api_requests_total{disabled="no",method="GET",path="/v1/email/:id",status="200"} 1`,
		`mailing_api_requests_total{disabled="no",method="POST",path="/v1/email/send",status="503"} 0`,
		`mailing_api_requests_total{disabled="no",method="POST",path="/mailings",status="500"} 0`,
		`mailing_api_request_duration_seconds_count{method="POST",path="/v1/email/send"} 2`,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("no %s in\n%s", line, metrics)
		}
	}
}

// Anybody can call the route of SNS, and tenants those of mailings: what the configuration switches off counts as no error
// of the api.
func TestMetrics_Disabled(t *testing.T) {
	t.Parallel()
	g := start(t, func(p *httpapi.Params) { p.HasRabbitMQ = false })
	for path, noKey := range map[string]bool{"/v1/ses/events": true, "/v1/recipients": false, "/v1/mailings": false} {
		r := g.do(t, call{Method: http.MethodPost, Path: path, Body: "{}", NoKey: noKey})
		if r.Status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", path, r.Status, r.Body)
		}
		metrics := g.metrics(t)
		for disabled, want := range map[string]int{"yes": 1, "no": 0} {
			line := fmt.Sprintf(`mailing_api_requests_total{disabled="%s",method="POST",path="%s",status="503"} %d`, disabled, path, want)
			if !strings.Contains(metrics, line) {
				t.Errorf("no %s in\n%s", line, metrics)
			}
		}
	}
	if log := g.Log.String(); strings.Contains(log, `"level":"ERROR"`) || strings.Contains(log, `"level":"WARN"`) {
		t.Errorf("logged: %s", log)
	}
}

// Metrics are not served by the tenants' listener.
func TestMetrics_Elsewhere(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for _, key := range []bool{false, true} {
		if r := g.do(t, call{Path: "/metrics", NoKey: !key}); r.Status != http.StatusNotFound {
			t.Errorf("%d %s", r.Status, r.Body)
		}
	}
}
