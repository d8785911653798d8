package ctl_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/api/internal/ctl"
	"email-gateway/shared/store/storetest"
)

// accepted sends an email with additional flags and returns its id.
func (o operator) accepted(t *testing.T, flags ...string) string {
	t.Helper()
	made := o.object(t, append([]string{
		"email", "send", "--to", "maria@cliente.example", "--subject", "Olá", "--html", "<p>Olá</p>", "--external-id", "CUST-42",
	}, flags...)...)
	id, _ := made["outboxId"].(string)
	return id
}

func TestEmailSend_EveryFlag(t *testing.T) {
	t.Parallel()
	tenant, _, d := newTenant(t)
	id := tenant.accepted(
		t, "--cc", "a@cliente.example,b@cliente.example", "--bcc", "c@cliente.example", "--text", "Olá", "--from", "Vendas <vendas@acme.example>",
		"--reply-to", "r@acme.example", "--header", "X-Invoice: 42", "--header", "X-Two:  b:c ", "--tag", "boleto", "--name", "Maria", "--company-name", "Maria Ltda",
		"--priority", "2", "--send-at", "2026-01-01T00:00:00Z", "--delivery", "at_most_once",
	)
	var row struct {
		Job              map[string]any
		Sender, Delivery string
	}
	var payload []byte
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT payload, sender, delivery FROM email_outbox WHERE id = $1`, id).Scan(&payload, &row.Sender, &row.Delivery); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(payload, &row.Job); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"to": "maria@cliente.example", "cc": []any{"a@cliente.example", "b@cliente.example"}, "bcc": []any{"c@cliente.example"},
		"subject": "Olá", "replyTo": "r@acme.example", "headers": map[string]any{"X-Invoice": "42", "X-Two": "b:c"}, "tags": []any{"boleto"},
	} {
		if diff := cmp.Diff(want, row.Job[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	person, _ := row.Job["recipient"].(map[string]any)
	if row.Sender != `"Vendas" <vendas@acme.example>` || row.Delivery != "at_most_once" || person["externalId"] != "CUST-42" || person["nome"] != "Maria" || person["razaoSocial"] != "Maria Ltda" {
		t.Errorf("%+v", row)
	}
}

// A complete request from a file is sent once per idempotency key.
func TestEmailSend_BodyIdempotencyKey(t *testing.T) {
	t.Parallel()
	tenant, _, d := newTenant(t)
	body := `{"to": "ana@example.com", "subject": "s", "html": "<p>x", "recipient": {"externalId": "1", "email": "ana@example.com"}}`
	tenant.stdin = body
	first := tenant.object(t, "email", "send", "--body", "-", "--idempotency-key", "invoice-1")
	again := tenant.object(t, "email", "send", "--body", file(t, "r.json", body), "--idempotency-key", "invoice-1")
	other := tenant.object(t, "email", "send", "--body", file(t, "r.json", body))
	if diff := cmp.Diff(first, again); diff != "" || other["outboxId"] == first["outboxId"] || count(t, d, `SELECT count(*) FROM email_outbox`) != 2 {
		t.Errorf("%v, again %v, other %v", first, again, other)
	}
	if text := tenant.must(t, "email", "send", "--body", file(t, "r.json", body), "--idempotency-key", "invoice-1"); !strings.HasPrefix(text, "Email "+first["outboxId"].(string)+" is accepted with status PENDING.\n") {
		t.Error(text)
	}
}

func TestEmailSend_Refused(t *testing.T) {
	t.Parallel()
	tenant, _, _ := newTenant(t)
	tests := []struct {
		args string
		code int
		want string
	}{
		{"", ctl.ExitUsage, "--to or --body is missing"},
		{"--to a@b.example", ctl.ExitUsage, "--subject is missing"},
		{"--to a@b.example --subject s", ctl.ExitUsage, "give --html, --html-file, --text or --text-file"},
		{"--to a@b.example --subject s --html x", ctl.ExitUsage, "--external-id is missing: give the company's own id of the recipient"},
		{"--to a@b.example --subject s --html x --external-id 1 --header X", ctl.ExitUsage, `--header "X" must be a name and a value`},
		{"--body x.json --to a@b.example", ctl.ExitUsage, "give only one of --body and --to"},
		{"--body /nowhere", ctl.ExitUsage, "--body: open /nowhere"},
		{"--body /dev/null", ctl.ExitUsage, "--body: /dev/null is not JSON"},
		{"--to a@b --subject s --html x --external-id 1 --priority 11", ctl.ExitFailed, "VALIDATION_FAILED: 3 fields are not valid\n  to "},
	}
	for _, tt := range tests {
		got := tenant.run(t, append([]string{"email", "send"}, strings.Fields(tt.args)...)...)
		if got.code != tt.code || got.stdout != "" || !strings.Contains(got.stderr, tt.want) {
			t.Errorf("email send %s: %+v, want %d, %s", tt.args, got, tt.code, tt.want)
		}
	}
}

// --watch ends when the email is final; the exit code is 0 only if it was sent.
func TestEmailSend_Watch(t *testing.T) {
	t.Parallel()
	tenant, by, d := newTenant(t)
	ended := make(chan outcome, 1)
	go func() {
		ended <- tenant.run(t, "email", "send", "--to", "a@b.example", "--subject", "s", "--html", "<p>x", "--external-id", "1", "--watch", "--json")
	}()
	storetest.WaitFor(t, d, `SELECT count(*) = 1 FROM email_outbox`)
	var id string
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT id FROM email_outbox`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	by.must(t, "email", "cancel", id, "--reason", "x")
	got := <-ended
	var shown struct{ Status string }
	if err := json.Unmarshal([]byte(got.stdout), &shown); err != nil || shown.Status != "CANCELLED" || got.code != ctl.ExitFailed || got.stderr != "gatewayctl: the email is CANCELLED\n" {
		t.Errorf("%+v, %v", got, err)
	}
}

// The same commands as operator (any company, with an audit entry) and as tenant (its own
// emails).
func TestEmail_OperatorAndTenant(t *testing.T) {
	t.Parallel()
	tenant, by, d := newTenant(t)
	both := operator{databaseURL: by.databaseURL, env: tenant.env}
	other := d.Accept(t, d.Company(t), nil).String()
	id := tenant.accepted(t, "--tag", "boleto")

	// The output has the same fields as the api's response.
	answered := get(t, tenant, "/v1/email/"+id)
	delete(answered, "jobId") // the same as the id
	if diff := cmp.Diff(answered, tenant.object(t, "email", "show", id)); diff != "" {
		t.Errorf("show (-api +gatewayctl):\n%s", diff)
	}
	for _, name := range []string{"events", "from"} { // only of a single email
		delete(answered, name)
	}
	if diff := cmp.Diff(map[string]any{"emails": []any{answered}, "more": false}, tenant.object(t, "email", "list", "--tag", "boleto")); diff != "" {
		t.Errorf("list (-api +gatewayctl):\n%s", diff)
	}
	if text := tenant.must(t, "email", "show", id); !strings.Contains(text, "maria@cliente.example") || strings.Contains(text, "masked") {
		t.Error(text)
	}
	for _, o := range []operator{by, both} {
		if text := o.must(t, "email", "show", id); !strings.Contains(text, "m***@c***.example") || !strings.Contains(text, "Acme (") {
			t.Error(text)
		}
	}
	if shown := both.object(t, "email", "show", id, "--as", "tenant"); shown["to"] != "maria@cliente.example" || shown["company"] != nil {
		t.Error(shown)
	}
	for _, args := range []string{"show", "cancel", "retry"} {
		if got := tenant.run(t, "email", args, other); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "NOT_FOUND: there is no such email\nOnly objects of the company that owns API_KEY") {
			t.Errorf("%s of another company: %+v", args, got)
		}
	}
	if got := (operator{}).run(t, "email", "show", id); got.code != ctl.ExitUsage || !strings.Contains(got.stderr, "set DATABASE_URL to run as an operator, or API_KEY") {
		t.Errorf("%+v", got)
	}

	// Operators must give a reason, tenants need not.
	if after := tenant.object(t, "email", "cancel", id); after["status"] != "CANCELLED" {
		t.Error(after)
	}
	if text := tenant.must(t, "email", "cancel", id); text != "Email "+id+" was cancelled and is CANCELLED now.\n" {
		t.Error(text)
	}
	if after := by.object(t, "email", "retry", id, "--reason", "they want it after all", "--operator", "eva"); after["status"] != "PENDING" || after["to"] != "m***@c***.example" {
		t.Error(after)
	}
	if got := by.run(t, "email", "retry", id); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "cannot be retried: it is PENDING") {
		t.Errorf("%+v", got)
	}
	if after := by.object(t, "email", "cancel", id, "--reason", "or not"); after["status"] != "CANCELLED" {
		t.Error(after)
	}
	by.must(t, "email", "cancel", id, "--reason", "twice is once")
	if after := tenant.object(t, "email", "retry", id); after["status"] != "PENDING" {
		t.Error(after)
	}
	exec(t, d, `UPDATE email_outbox SET status = 'SENT', processed_at = now() WHERE id = $1`, id)
	if got := by.run(t, "email", "cancel", id, "--reason", "x"); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "the email cannot be cancelled: it is SENT") {
		t.Errorf("%+v", got)
	}
	if got := tenant.run(t, "email", "cancel", id); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "CANCEL_TOO_LATE") {
		t.Errorf("%+v", got)
	}
	exec(t, d, `UPDATE email_outbox SET status = 'FAILED', body_erased_at = now() WHERE id = $1`, id)
	if got := by.run(t, "email", "retry", id); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "its content has been deleted") {
		t.Errorf("%+v", got)
	}
	exec(t, d, `DELETE FROM email_outbox WHERE id = $1`, id)
	if got := by.run(t, "email", "retry", id); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "its content has been deleted") {
		t.Errorf("%+v", got)
	}

	// An operator's action is in the audit log and, without the reason, in the timeline.
	var audit struct {
		Entries []struct{ Operator, Action, Subject, Reason, Company string }
		More    bool
	}
	raw := by.must(t, "audit", "list", "--action", "email", "--json")
	if err := json.Unmarshal([]byte(raw), &audit); err != nil {
		t.Fatal(err)
	}
	type entry = struct{ Operator, Action, Subject, Reason, Company string }
	want := []entry{
		{"ana", "email.cancel", id, "or not", "Acme"}, {"eva", "email.retry", id, "they want it after all", "Acme"},
	}
	if diff := cmp.Diff(want, audit.Entries); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := by.must(t, "email", "show", id); !strings.Contains(text, "operator eva") || strings.Contains(text, "after all") {
		t.Error(text)
	}
}

func TestEmailList_OfACompany(t *testing.T) {
	t.Parallel()
	tenant, by, d := newTenant(t)
	for range 3 {
		tenant.accepted(t)
	}
	d.Accept(t, d.Company(t), nil)
	for args, want := range map[string]int{
		"": 3, "--limit 2": 2, "--status SENT": 0, "--status PENDING": 3, "--since 1h": 3, "--until 1h": 0, "--since 2099-01-01T00:00:00Z": 0,
		"--tag x": 0,
	} {
		for _, o := range []struct {
			operator
			args []string
		}{{by, []string{"email", "list", "--company", "Acme"}}, {tenant, []string{"email", "list"}}} {
			var list struct {
				Emails []map[string]any
				More   bool
			}
			if err := json.Unmarshal([]byte(o.must(t, append(append(o.args, "--json"), strings.Fields(args)...)...)), &list); err != nil {
				t.Fatal(err)
			}
			if len(list.Emails) != want || list.More != (args == "--limit 2") || list.Emails == nil {
				t.Errorf("%v %s: %d, more %v; want %d", o.args, args, len(list.Emails), list.More, want)
			}
		}
	}
	if text := by.must(t, "email", "list", "--company", "Acme"); strings.Contains(text, "maria@") || !strings.Contains(text, "m***@c***.example") {
		t.Error(text)
	}
	if text := by.must(t, "email", "list", "--company", "Acme", "--reveal"); !strings.Contains(text, "maria@cliente.example") {
		t.Error(text)
	}
	if text := by.must(t, "audit", "list"); !strings.Contains(text, "email.reveal") {
		t.Error(text)
	}
	if got := tenant.run(t, "email", "list", "--company", "Acme"); got.code != ctl.ExitUsage || !strings.Contains(got.stderr, "--company and --reveal are only for operators") {
		t.Errorf("%+v", got)
	}
}
