package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"email-gateway/shared/telemetry/telemetrytest"
)

// callersTrace is the trace that a tenant sends with an email.
const callersTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// tracedEmail sends an email that belongs to the caller's trace.
func tracedEmail(s *system, to string) {
	s.t.Helper()
	status, answer := s.call(http.MethodPost, "/v1/email/send", newBody(to, nil), map[string]string{
		"traceparent": callersTrace, "tracestate": "vendor=" + strings.ReplaceAll(to, "@", "-at-"), "baggage": "customer=" + to,
	})
	if status != http.StatusAccepted {
		s.t.Fatalf("%d %s", status, answer)
	}
	s.awaitAll(1, "SENT")
}

// path is a chain of spans, each the parent of the next, as service and name.
type path []string

// checkTraces follows one trace from a caller through HTTP, the outbox, the queue and the worker to SES, and the
// others to their ends; and searches for what must not leave the installation.
func checkTraces(t *testing.T, s *system, c *telemetrytest.Collector) {
	t.Helper()
	single := path{
		"api: POST /v1/email/send", "api: accept", "dispatcher: publish email:send", "worker: process email:send", "worker: ses SendEmail",
	}
	eventually(t, func() error { // they are sent in batches
		spans := c.Spans()
		if err := follow(spans, callersTrace[3:35], callersTrace[36:52], single); err != nil {
			return err
		}
		for _, step := range []string{"load", "claim", "record"} {
			beside := append(slices.Clone(single[:4]), "worker: "+step)
			if err := follow(spans, callersTrace[3:35], callersTrace[36:52], beside); err != nil {
				return err
			}
		}
		for _, complete := range []path{
			{"api: POST /mailings", "api: ingest", "dispatcher: publish mailing.jobs.process", "worker: process mailing.jobs.process"},
			{"api: POST /v1/recipients", "api: accept", "dispatcher: publish recipients_queue", "worker: process recipients_queue"},
			// A mailing's emails have traces of their own: a trace with a million spans would be useless.
			{"dispatcher: publish email:send:low", "worker: process email:send:low", "worker: ses SendEmail"},
		} {
			if err := follow(spans, "", "", complete); err != nil {
				return err
			}
		}
		return nil
	})
	for _, span := range c.Spans() {
		if span.TraceState != "" {
			t.Errorf("%s of %s has the state %q, which callers fill in as they like", span.Name, span.Service, span.TraceState)
		}
	}
	text := c.Text()
	var company string
	if err := s.db.SQL.QueryRowContext(t.Context(), "SELECT id FROM companies").Scan(&company); err != nil {
		t.Fatal(err)
	}
	for _, forbidden := range []string{"@", "maria", "cliente.example", "cliente-", company, "Acme", "acme", s.key[len(s.key)-20:], "Sua fatura", "clientes.csv"} {
		if strings.Contains(text, forbidden) {
			t.Errorf("the traces hold %q", forbidden)
		}
	}
	if len(text) < 10_000 {
		t.Errorf("only %d bytes of traces", len(text))
	}
}

// follow searches for the path below a parent ("" for none) in one trace ("" for any).
func follow(spans []telemetrytest.Span, trace, parent string, p path) error {
	if len(p) == 0 {
		return nil
	}
	err := fmt.Errorf("no span %q below %q", p[0], parent)
	for _, span := range spans {
		service := strings.TrimPrefix(span.Service, "email-gateway-")
		if service+": "+span.Name != p[0] || span.Parent != parent || trace != "" && span.Trace != trace {
			continue
		}
		below := follow(spans, span.Trace, span.ID, p[1:])
		if below == nil {
			return nil
		}
		err = fmt.Errorf("%s > %w", p[0], below)
	}
	return err
}
