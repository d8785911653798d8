package ctl_test

import (
	"path/filepath"
	"strings"
	"testing"

	"email-gateway/api/internal/ctl"
)

// JSON would have U+FFFD in place of each byte that is not UTF-8, and the api would accept it.
func TestInput_NotUTF8(t *testing.T) {
	t.Parallel()
	tenant, _, d := newTenant(t)
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"t/default/subject.txt": "Olá", "t/default/body.html": "<p>Ol\xe1</p>", "a.csv": "email\nana@example.com\n", "S\xe3o.txt": "x",
		"latin1.json": "{\"nome\": \"Jos\xe9\"}", "utf16.html": "\xff\xfe<\x00p\x00>\x00",
	})
	path := func(name string) string { return filepath.Join(dir, name) }
	send := func(args ...string) []string {
		return append([]string{"email", "send", "--to", "ana@example.com", "--external-id", "1", "--subject", "s"}, args...)
	}
	html := path("t/default/body.html")
	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"body":               {send("--html-file", html), ctl.ExitUsage, "--html-file: " + html + " is not UTF-8 (byte 6): save it as UTF-8"},
		"UTF-16":             {send("--html-file", path("utf16.html")), ctl.ExitUsage, "is not UTF-8 (byte 1)"},
		"argument":           {send("--html", "<p>x", "--name", "Jos\xe9"), ctl.ExitFailed, `"Jos\xe9" is not UTF-8`},
		"name of attachment": {send("--html", "<p>x", "--attach", path("S\xe3o.txt")), ctl.ExitFailed, `"S\xe3o.txt" is not UTF-8`},
		"request":            {[]string{"email", "send", "--body", path("latin1.json")}, ctl.ExitUsage, "--body: " + path("latin1.json") + " is not UTF-8 (byte 14)"},
		"mailing": {
			[]string{"mailing", "create", "--file", path("a.csv"), "--subject", "s", "--html-file", html},
			ctl.ExitUsage, "--html-file: " + html + " is not UTF-8",
		},
		"mailing's attachment": {
			[]string{"mailing", "create", "--file", path("a.csv"), "--subject", "s", "--html", "<p>x", "--attach", path("S\xe3o.txt")},
			ctl.ExitFailed, `--attach: "S\xe3o.txt" is not UTF-8`,
		},
		"template": {[]string{"template", "push", dir, "--publish"}, ctl.ExitUsage, html + " is not UTF-8 (byte 6): save it as UTF-8"},
		"data":     {[]string{"template", "preview", "t", "--data", path("latin1.json")}, ctl.ExitUsage, "--data: " + path("latin1.json") + " is not UTF-8 (byte 14)"},
	} {
		if got := tenant.run(t, tt.args...); got.code != tt.code || !strings.Contains(got.stderr, tt.want) {
			t.Errorf("%s: %+v, want %d, %s", name, got, tt.code, tt.want)
		}
	}
	if stored := count(t, d, `SELECT (SELECT count(*) FROM email_outbox) + (SELECT count(*) FROM mailings) + (SELECT count(*) FROM templates)`); stored != 0 {
		t.Errorf("%d emails, mailings and templates, want none", stored)
	}
}

func TestInput_ByteOrderMark(t *testing.T) {
	t.Parallel()
	tenant, _, _ := newTenant(t)
	const mark = "\ufeff"
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"t/default/subject.txt": mark + "Olá {{nome}}", "t/default/body.html": mark + "<p>Olá</p>", "t/default/template.json": mark + `{"variables": [{"name": "nome"}]}`,
		"data.json": mark + `{"nome": "Ana"}`,
		"send.json": mark + `{"to": "ana@example.com", "subject": "s", "html": "<p>x", "recipient": {"externalId": "1", "email": "ana@example.com"}}`,
	})
	tenant.must(t, "email", "send", "--body", filepath.Join(dir, "send.json"))
	tenant.must(t, "template", "push", dir, "--publish")
	for _, data := range []string{filepath.Join(dir, "data.json"), "-"} {
		tenant.stdin = mark + `{"nome": "Ana"}`
		if got := tenant.must(t, "template", "preview", "t", "--data", data); !strings.Contains(got, "Subject: Olá Ana\n\n<p>Olá</p>") {
			t.Errorf("--data %s: %q", data, got)
		}
	}
}
