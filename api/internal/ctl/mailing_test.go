package ctl_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/api/internal/ctl"
	"email-gateway/api/internal/ctl/goldentest"
	"email-gateway/shared/store/storetest"
)

// people is a file as the Portuguese Excel saves it.
const people = "E-mail;Nome;Cidade\r\nmaria@example.com;Maria;Bras\xedlia\r\nana@example.com;Ana;\r\nMARIA@example.com;Maria outra vez;\r\n;Ningu\xe9m;\r\n"

// upload creates a mailing with additional flags and returns its id.
func (o operator) upload(t *testing.T, flags ...string) string {
	t.Helper()
	made := o.object(t, append([]string{
		"mailing", "create", "--file", file(t, "clientes.csv", people), "--subject", "Olá, {{nome}}", "--html", "<p>{{nome}}, {{cidade}}</p>",
	}, flags...)...)
	id, _ := made["mailingId"].(string)
	return id
}

func exec(t *testing.T, d storetest.Database, statement string, args ...any) {
	t.Helper()
	if _, err := d.SQL.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// A mailing from upload to completion, as printed.
func TestMailing_InText(t *testing.T) {
	t.Parallel()
	tenant, _, d := newTenant(t)
	var session strings.Builder
	do := func(args ...string) string {
		t.Helper()
		out := tenant.must(t, args...)
		session.WriteString("$ gatewayctl " + strings.Join(args[:min(2, len(args))], " ") + " …\n" + out + "\n")
		return out
	}
	do("mailing", "list")
	path := file(t, "clientes.csv", people)
	made := do("mailing", "create", "--file", path, "--subject", "Olá, {{nome}}", "--html", "<p>{{nome}}</p>", "--hold", "--tag", "natal,2026")
	id := strings.Fields(made)[1]
	do("mailing", "show", id)
	do("mailing", "start", id)
	do("mailing", "pause", id)
	do("mailing", "resume", id)
	do("mailing", "entries", id)
	do("mailing", "entries", id, "--status", "sent")
	do("mailing", "verdicts", id)
	do("mailing", "rows", id)
	do("mailing", "verdicts", id, "--delimiter", ";")
	d.MailingEmail(t, uuid.MustParse(id))
	exec(t, d, `UPDATE mailing_entries SET status = CASE line_no WHEN 2 THEN 'SENT' ELSE 'FAILED' END`)
	exec(t, d, `UPDATE mailings SET status = 'COMPLETED', sent = 1, failed = 1, processed_lines = 2, counted_at = now(), completed_at = now()`)
	do("mailing", "show", id)
	do("mailing", "list")
	do("mailing", "retry-failed", id)
	do("mailing", "cancel", id)
	goldentest.Compare(t, "mailing", timeless(stable(session.String())))
}

func TestMailing_JSON(t *testing.T) {
	t.Parallel()
	tenant, _, d := newTenant(t)
	flags := []string{
		"--name", "natal", "--text", "{{nome}}", "--from", "ola@acme.example", "--reply-to", "resposta@acme.example",
		"--send-at", "2099-01-01T00:00:00Z", "--tag", "a,b", "--delivery", "at_most_once", "--test", "eu@acme.example",
	}
	// The start time is at most a year ahead.
	if got := tenant.run(t, append([]string{"mailing", "create", "--file", file(t, "c.csv", people), "--subject", "s", "--html", "<p>x"}, flags...)...); got.code != ctl.ExitFailed ||
		!strings.Contains(got.stderr, "VALIDATION_FAILED") || !strings.Contains(got.stderr, "sendAt") {
		t.Errorf("%+v", got)
	}
	flags = append(flags[:8], flags[10:]...)
	id := tenant.upload(t, flags...)
	shown := tenant.object(t, "mailing", "show", id)
	for name, want := range map[string]any{
		"mailingId": id, "filename": "natal", "from": "ola@acme.example", "replyTo": "resposta@acme.example", "tags": []any{"a", "b"},
		"delivery": "at_most_once", "status": "QUEUED", "subject": "Olá, {{nome}}", "total": 4.0, "accepted": 2.0, "invalid": 1.0, "duplicates": 1.0,
		"invalidByReason": map[string]any{"MISSING_EMAIL": 1.0},
	} {
		if diff := cmp.Diff(want, shown[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	// The output has every field of the api's response.
	answered := get(t, tenant, "/v1/mailings/"+id)
	if diff := cmp.Diff(answered, shown); diff != "" {
		t.Errorf("show (-api +gatewayctl):\n%s", diff)
	}
	listed := tenant.object(t, "mailing", "list")
	if diff := cmp.Diff(map[string]any{"mailings": []any{answered}, "more": false}, listed); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	verdicts := tenant.object(t, "mailing", "verdicts", id)
	want := []any{
		map[string]any{"line": 3.0, "column": "Cidade", "code": "EMPTY_FIELD"},
		map[string]any{"line": 4.0, "column": "E-mail", "code": "DUPLICATE"},
		map[string]any{"line": 5.0, "column": "E-mail", "code": "MISSING_EMAIL"},
	}
	if diff := cmp.Diff(map[string]any{"verdicts": want}, verdicts); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	exec(t, d, `UPDATE mailing_entries SET invalid_reason = 'mx', validation_details = 'x', status = 'INVALID', external_id = 'ses-1',
		last_attempt = now(), recipient_id = gen_random_uuid(), nome = 'Maria', razao_social = 'Maria Ltda' WHERE line_no = 2`)
	entries := get(t, tenant, "/v1/mailings/"+id+"/entries")
	if diff := cmp.Diff(map[string]any{"entries": entries["entries"], "more": false}, tenant.object(t, "mailing", "entries", id)); diff != "" {
		t.Errorf("entries (-api +gatewayctl):\n%s", diff)
	}
	rows := get(t, tenant, "/v1/mailings/"+id+"/rows")
	if diff := cmp.Diff(rows, tenant.object(t, "mailing", "rows", id)); diff != "" || len(rows["rows"].([]any)) != 4 {
		t.Errorf("rows (-api +gatewayctl):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"rows": []any{}}, tenant.object(t, "mailing", "rows", id, "--status", "sent")); diff != "" {
		t.Errorf("rows --status sent (-want +got):\n%s", diff)
	}
	if paged := tenant.object(t, "mailing", "entries", id, "--limit", "1"); paged["more"] != true || len(paged["entries"].([]any)) != 1 {
		t.Errorf("one entry: %v", paged)
	}
	for step, want := range map[string]string{"pause": "PAUSED", "cancel": "CANCELLED"} {
		if after := tenant.object(t, "mailing", step, tenant.upload(t, "--name", step)); after["status"] != want {
			t.Errorf("%s: %v", step, after)
		}
	}
	moved := tenant.object(t, "mailing", "move", tenant.upload(t, "--name", "move"), "--send-at", "2020-01-01T00:00:00Z")
	if moved["status"] != "QUEUED" || moved["startsAt"] != moved["updatedAt"] {
		t.Errorf("moved to now: %v", moved)
	}
	none := tenant.object(t, "mailing", "verdicts", tenant.upload(t, "--file", file(t, "gut.csv", "email\na@example.com\n"), "--subject", "s", "--html", "<p>x"))
	if diff := cmp.Diff(map[string]any{"verdicts": []any{}}, none); diff != "" {
		t.Error(diff)
	}
}

// get queries the api directly.
func get(t *testing.T, o operator, path string) (fields map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.env["API_URL"]+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+o.env["API_KEY"])
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&fields); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v", path, answer.StatusCode, err)
	}
	return fields
}

// Repeating an upload creates no second mailing; a different one of the same name is rejected.
func TestMailingCreate_SameUpload(t *testing.T) {
	t.Parallel()
	tenant, _, d := newTenant(t)
	path := file(t, "clientes.csv", people)
	args := []string{"mailing", "create", "--file", path, "--subject", "Olá", "--html-file", file(t, "natal.html", "<p>{{nome}}</p>")}
	first, again := tenant.object(t, args...), tenant.object(t, args...)
	if first["mailingId"] != again["mailingId"] || first["replayed"] != false || again["replayed"] != true || count(t, d, `SELECT count(*) FROM mailings`) != 1 {
		t.Errorf("%v\n%v", first, again)
	}
	if output := tenant.must(t, args...); !strings.Contains(output, "nothing is sent again") || strings.Contains(output, "QUEUED") {
		t.Errorf("the output presents a repeated upload as a new mailing: %s", output)
	}
	args[5] = "Tchau"
	got := tenant.run(t, args...)
	if got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "FILENAME_EXISTS") || !strings.Contains(got.stderr, "Give it another name with --name") {
		t.Errorf("%+v", got)
	}
	// From standard input, with --name.
	tenant.stdin = people
	made := tenant.object(t, "mailing", "create", "--file", "-", "--name", "stdin.csv", "--subject", "Olá", "--html", "<p>x", "--dry-run")
	if made["status"] != "COMPLETED" || made["accepted"] != 2.0 {
		t.Errorf("%v", made)
	}
}

// An operator ends a mailing that its company has paused and forgotten, also of a suspended company.
func TestMailing_CancelledByOperator(t *testing.T) {
	t.Parallel()
	tenant, by, _ := newTenant(t)
	id := tenant.upload(t, "--hold")
	by.must(t, "company", "suspend", "Acme", "--reason", "it has left")
	if got := by.run(t, "company", "cancel-mailing", id); got.code == ctl.ExitOK || !strings.Contains(got.stderr, "--reason") {
		t.Errorf("without a reason: %+v", got)
	}
	if text := by.must(t, "company", "mailings", "Acme"); !strings.Contains(text, id) || !strings.Contains(text, "PAUSED") || strings.Contains(text, "--limit") {
		t.Errorf("the company's mailings: %s", text)
	}
	if text := by.must(t, "company", "mailings", "Acme", "--json"); !strings.Contains(text, `"mailingId": "`+id+`"`) {
		t.Errorf("the company's mailings: %s", text)
	}
	var cancelled struct{ MailingID, CompanyID, Status string }
	by.decode(t, &cancelled, "company", "cancel-mailing", id, "--reason", "it has left")
	if cancelled.MailingID != id || cancelled.Status != "CANCELLED" {
		t.Errorf("cancelled: %+v", cancelled)
	}
	if audit := by.must(t, "audit", "list", "--json"); !strings.Contains(audit, `"mailing.cancel"`) || !strings.Contains(audit, cancelled.CompanyID) {
		t.Errorf("the audit log: %s", audit)
	}
	if got := by.run(t, "company", "cancel-mailing", id, "--reason", "again"); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "CANCELLED") {
		t.Errorf("again: %+v", got)
	}
	if got := by.run(t, "company", "cancel-mailing", "01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b", "--reason", "wrong id"); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "not found") {
		t.Errorf("an unknown id: %+v", got)
	}
}

// Errors list all invalid fields and how to correct them.
func TestMailing_Refused(t *testing.T) {
	t.Parallel()
	tenant, by, _ := newTenant(t)
	path := file(t, "clientes.csv", people)
	create := func(flags string) []string {
		args := []string{"mailing", "create", "--file", path, "--subject", "Olá", "--html", "<p>{{nome}}</p>"}
		return append(args, strings.Fields(flags)...)
	}
	stranger := operator{env: map[string]string{"API_URL": tenant.env["API_URL"], "API_KEY": "gw_live_abc_def"}}
	by.must(t, "company", "create", "--name", "Beta", "--default-from", "ola@beta.example")
	weak := operator{env: map[string]string{"API_URL": tenant.env["API_URL"], "API_KEY": by.newKey(t, "Beta", "--scopes", "emails:send")}}
	weak.env["API_KEY"] = by.object(t, "key", "create", "--company", "Beta")["key"].(string)
	away := operator{env: map[string]string{"API_URL": "http://127.0.0.1:1", "API_KEY": "x"}}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<h1>It works!</h1>") }))
	t.Cleanup(page.Close)
	elsewhere := operator{env: map[string]string{"API_URL": page.URL, "API_KEY": "x"}}
	tests := []struct {
		as   operator
		args []string
		code int
		want string
	}{
		{operator{}, create(""), ctl.ExitUsage, "API_KEY is not set: give an API key of the company"},
		{operator{env: map[string]string{"API_KEY": "x", "API_URL": "127.0.0.1:8080"}}, create(""), ctl.ExitUsage, "API_URL must be an http:// or https:// URL"},
		{away, create(""), ctl.ExitFailed, "does not answer: dial tcp 127.0.0.1:1: connect: connection refused (nothing was changed: check that the api is running and that API_URL is right)"},
		{elsewhere, []string{"mailing", "list"}, ctl.ExitFailed, "did not send a response of the gateway: check API_URL:"},
		{stranger, create(""), ctl.ExitFailed, "UNAUTHORIZED: the API key is not valid: it is unknown, revoked, or its secret is wrong; check which installation it belongs to\nCheck that API_KEY belongs to this installation"},
		{weak, create(""), ctl.ExitFailed, "SCOPE_MISSING: the API key lacks the scope mailings:write: ask the operator of the gateway for a key with this scope\n`gatewayctl key create"},
		{tenant, create("--from x@other.example --reply-to x"), ctl.ExitFailed, "VALIDATION_FAILED: 2 fields are not valid\n  replyTo is not an email address: it has no @ (INVALID_EMAIL)\n  from "},
		{tenant, create("--text {{cidad}}"), ctl.ExitFailed, "UNKNOWN_MERGE_FIELD"},
		{tenant, create("--watch --hold"), ctl.ExitUsage, "give only one of --hold and --watch"},
		{tenant, create("--template natal"), ctl.ExitUsage, "give only one of --html and --template"},
		{tenant, create("--html-file x"), ctl.ExitUsage, "give only one of --html and --html-file"},
		{tenant, []string{"mailing", "create", "--file", path, "--subject", "x"}, ctl.ExitUsage, "--html, --html-file, --text, --text-file or --template is missing"},
		{tenant, []string{"mailing", "create", "--file", path, "--subject", "x", "--html-file", "/nowhere"}, ctl.ExitUsage, "--html-file: open /nowhere: no such file"},
		{tenant, []string{"mailing", "create", "--file", "/nowhere", "--subject", "x", "--html", "x"}, ctl.ExitUsage, "--file: open /nowhere: no such file"},
		{tenant, []string{"mailing", "create", "--file", "/", "--subject", "x", "--html", "x"}, ctl.ExitUsage, "--file: / is a folder"},
		{tenant, []string{"mailing", "create", "--file", "-", "--subject", "x", "--html", "x"}, ctl.ExitUsage, "--file - needs --name"},
		{tenant, []string{"mailing", "move", "01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b"}, ctl.ExitUsage, "--send-at is missing"},
		{tenant, []string{"mailing", "show", "7"}, ctl.ExitUsage, `"7" is not a mailing id`},
		{tenant, []string{"mailing", "show", noID}, ctl.ExitFailed, "NOT_FOUND: there is no such mailing\nOnly objects of the company that owns API_KEY are found."},
		{tenant, []string{"mailing", "pause", noID}, ctl.ExitFailed, "NOT_FOUND"},
		{tenant, []string{"mailing", "verdicts", noID}, ctl.ExitFailed, "NOT_FOUND"},
		{tenant, []string{"mailing", "verdicts", noID, "--json"}, ctl.ExitFailed, "NOT_FOUND"},
		{tenant, []string{"mailing", "rows", noID, "--json", "--delimiter", ";"}, ctl.ExitUsage, "--delimiter is only for CSV"},
		{tenant, []string{"mailing", "watch", noID}, ctl.ExitFailed, "NOT_FOUND"},
		{tenant, []string{"mailing", "entries", noID, "--status", "x"}, ctl.ExitFailed, "status must be one of"},
		{tenant, []string{"mailing", "list", "--limit", "0"}, ctl.ExitUsage, "--limit must be 1 to 10000"},
	}
	for _, tt := range tests {
		got := tt.as.run(t, tt.args...)
		if got.code != tt.code || got.stdout != "" || !strings.Contains(got.stderr, tt.want) {
			t.Errorf("gatewayctl %s: exit code %d, %s%s\nwant %d, %s", strings.Join(tt.args, " "), got.code, got.stdout, got.stderr, tt.code, tt.want)
		}
	}
	by.must(t, "company", "suspend", "Acme", "--reason", "unpaid")
}

// watch ends when the mailing is finished; the exit code reflects its status.
func TestMailingWatch(t *testing.T) {
	t.Parallel()
	tenant, _, d := newTenant(t)
	for status, want := range map[string]struct {
		code   int
		stderr string
	}{
		"COMPLETED": {ctl.ExitOK, ""},
		"CANCELLED": {ctl.ExitFailed, "gatewayctl: the mailing was cancelled\n"},
		"FAILED":    {ctl.ExitFailed, "gatewayctl: the mailing has FAILED: its job failed three times\n"},
	} {
		id := tenant.upload(t, "--name", status)
		ended := make(chan outcome, 1)
		go func() { ended <- tenant.run(t, "mailing", "watch", id, "--json") }()
		exec(t, d, `UPDATE mailings SET status = $2, sent = 2, completed_at = now() WHERE id = $1`, id, status)
		got := <-ended
		var shown struct{ Status string }
		if err := json.NewDecoder(bytes.NewReader([]byte(got.stdout))).Decode(&shown); err != nil || shown.Status != status || got.code != want.code || got.stderr != want.stderr {
			t.Errorf("%s: %+v, %v", status, got, err)
		}
	}
	// Without a terminal, progress is written as lines to standard error.
	exec(t, d, `UPDATE mailings SET status = 'PAUSED'`)
	id := tenant.upload(t, "--name", "paused", "--hold")
	ended := make(chan outcome, 1)
	go func() { ended <- tenant.run(t, "mailing", "watch", id) }()
	storetest.WaitFor(t, d, `SELECT count(*) > 0 FROM mailings WHERE id = '`+id+`' AND status = 'PAUSED'`)
	exec(t, d, `UPDATE mailings SET status = 'COMPLETED', sent = 2, completed_at = now() WHERE id = $1`, id)
	if got := <-ended; !strings.HasPrefix(got.stdout, "Mailing "+id+" is COMPLETED\n") || strings.Contains(got.stderr, "\x1b") {
		t.Errorf("%+v", got)
	}
}
