package ctl_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/api/internal/ctl"
)

// pdf is a content that the api takes for a PDF.
const pdf = "%PDF-1.7\n1 0 obj <</Type /Catalog>> endobj\ntrailer <</Root 1 0 R>>\n%%EOF\n"

func TestMailing_Attach(t *testing.T) {
	t.Parallel()
	tenant, _, d := newTenant(t)
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"clientes.csv": people, "regulamento.xls": pdf, "termos.txt": "Termos de uso"})
	stored, _ := tenant.object(t, "file", "upload", filepath.Join(dir, "termos.txt"))["id"].(string)
	create := []string{
		"mailing", "create", "--file", filepath.Join(dir, "clientes.csv"), "--subject", "Olá", "--html", "<p>{{nome}}", "--hold",
		"--attach", filepath.Join(dir, "regulamento.xls"), "--attach", stored + "=Termos, março.txt",
	}
	id, _ := tenant.object(t, create...)["mailingId"].(string)
	shown := tenant.object(t, "mailing", "show", id)
	if diff := cmp.Diff(get(t, tenant, "/v1/mailings/"+id), shown); diff != "" {
		t.Errorf("show (-api +gatewayctl):\n%s", diff)
	}
	files, _ := shown["attachments"].([]any)
	if len(files) != 2 {
		t.Fatalf("attachments: %v", files)
	}
	// The content decides the type, not the extension.
	for i, want := range []struct{ name, kind string }{{"regulamento.xls", "application/pdf"}, {"Termos, março.txt", "text/plain; charset=utf-8"}} {
		if got, _ := files[i].(map[string]any); got["filename"] != want.name || got["contentType"] != want.kind || got["disposition"] != "attachment" {
			t.Errorf("attachment %d: %v", i, got)
		}
	}
	text := tenant.must(t, "mailing", "show", id)
	for _, want := range []string{"\n  attached  regulamento.xls (application/pdf, 73 bytes)\n", "\n            Termos, março.txt (text/plain; charset=utf-8, 13 bytes)\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the output of show does not contain %q:\n%s", want, text)
		}
	}
	// Stored content keeps its id, so the same command sends the same request.
	if again := tenant.object(t, create...); again["mailingId"] != id || again["replayed"] != true {
		t.Errorf("repeated: %v", again)
	}
	// The test email has the attachments too.
	tenant.upload(t, "--name", "test", "--hold", "--test", "eu@acme.example", "--attach", filepath.Join(dir, "regulamento.xls"))
	var n int
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM email_outbox WHERE attachments = 1`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d emails with one attachment, want 1 (%v)", n, err)
	}
}

func TestAttach_Refused(t *testing.T) {
	t.Parallel()
	tenant, by, _ := newTenant(t)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	writeFiles(t, dir, map[string]string{
		"clientes.csv": people, "nota.pdf": pdf, "nota.exe": "text", "vazio.txt": "",
		"programa.txt": "MZ\x90\x00\x03\x00\x00\x00\x04\x00\x00\x00\xff\xff\x00\x00" + strings.Repeat("\x00", 44) + "\x80\x00\x00\x00",
	})
	mailing := []string{"mailing", "create", "--file", in("clientes.csv"), "--subject", "Olá", "--html", "<p>{{nome}}"}
	email := []string{"email", "send", "--to", "ana@example.com", "--external-id", "42", "--subject", "Nota", "--text", "Nota"}
	weak := operator{env: map[string]string{
		"API_URL": tenant.env["API_URL"], "API_KEY": by.object(t, "key", "create", "--company", "Acme", "--scopes", "mailings:write")["key"].(string),
	}}
	attach := func(command []string, files ...string) []string {
		command = slices.Clone(command)
		for _, f := range files {
			command = append(command, "--attach", f)
		}
		return command
	}
	eleven := slices.Repeat([]string{in("nota.pdf")}, 11)
	for _, tt := range []struct {
		as   operator
		args []string
		code int
		want string
	}{
		{tenant, attach(mailing, in("nota.doc")), ctl.ExitUsage, "--attach: stat " + in("nota.doc") + ": no such file"},
		{tenant, attach(email, in("nota.doc")), ctl.ExitUsage, "--attach: stat " + in("nota.doc") + ": no such file"},
		{tenant, attach(mailing, dir), ctl.ExitUsage, "--attach: " + dir + " is a folder"},
		{tenant, attach(mailing, in("vazio.txt")), ctl.ExitFailed, "--attach " + in("vazio.txt") + ": EMPTY_FILE: "},
		{tenant, attach(mailing, in("programa.txt")), ctl.ExitFailed, "--attach " + in("programa.txt") + ": "},
		{tenant, attach(email, in("programa.txt")), ctl.ExitFailed, "--attach " + in("programa.txt") + ": contentType is a program"},
		{weak, attach(mailing, in("nota.pdf")), ctl.ExitFailed, "--attach " + in("nota.pdf") + ": SCOPE_MISSING: the API key lacks the scope emails:send"},
		{tenant, attach(mailing, in("nota.pdf"), in("nota.exe")), ctl.ExitFailed, "--attach " + in("nota.exe") + ": filename ends in .exe"},
		{tenant, attach(email, in("nota.pdf"), in("nota.exe")), ctl.ExitFailed, "--attach " + in("nota.exe") + ": filename ends in .exe"},
		{tenant, attach(mailing, in("nota.exe"), noID+"=x.pdf"), ctl.ExitFailed, "\n  --attach " + in("nota.exe") + ": filename ends in .exe"},
		{tenant, attach(mailing, in("nota.exe"), noID+"=x.pdf"), ctl.ExitFailed, "\n  --attach " + noID + "=x.pdf: fileId is not a file of this company"},
		{tenant, attach(mailing, eleven...), ctl.ExitFailed, "the files of --attach must have at most 10 entries, not 11"},
		{tenant, attach(email, eleven...), ctl.ExitFailed, "the files of --attach must have at most 10 entries, not 11"},
	} {
		got := tt.as.run(t, tt.args...)
		if got.code != tt.code || got.stdout != "" || !strings.Contains(got.stderr, tt.want) {
			t.Errorf("gatewayctl %s: exit code %d, %s%s\nwant %d, %s", strings.Join(tt.args, " "), got.code, got.stdout, got.stderr, tt.code, tt.want)
		}
	}
}
