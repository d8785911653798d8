package ctl_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"email-gateway/api/internal/ctl"
)

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTemplate_Files(t *testing.T) {
	t.Parallel()
	tenant, _, _ := newTenant(t)
	dir, copied := t.TempDir(), t.TempDir()
	files := map[string]string{
		"invoice/default/subject.txt":   "Invoice {{number}}\n",
		"invoice/default/body.html":     "<p>{{name}}</p>\n<ul>{{#lines}}<li>{{.}}</li>{{/lines}}</ul>\n",
		"invoice/default/template.json": "{\n  \"variables\": [\n    {\n      \"name\": \"name\",\n      \"default\": \"customer\"\n    }\n  ]\n}\n",
		"invoice/pt/subject.txt":        "Nota {{number}}\n",
		"invoice/pt/body.html":          "<p>Nota</p>",
	}
	writeFiles(t, dir, files)
	data := filepath.Join(dir, "data.json")
	writeFiles(t, dir, map[string]string{"data.json": `{"number": 7, "lines": ["a", "<b>"]}`})
	steps := []struct {
		args []string
		want []string
	}{
		{[]string{"push", dir, "--dry-run"}, []string{"invoice/default: would be created", "+ Invoice {{number}}"}},
		{[]string{"push", dir}, []string{"invoice/default: created, version 1", "invoice/pt: created, version 1"}},
		{[]string{"pull", copied}, []string{"No templates found."}},
		{[]string{"push", dir}, []string{"invoice/default: unchanged, version 1", "invoice/pt: unchanged, version 1"}},
		{[]string{"push", dir, "--publish"}, []string{"invoice/default: published, version 1"}},
		{[]string{"push", dir, "--publish"}, []string{"invoice/default: unchanged, version 1"}},
		{[]string{"pull", copied}, []string{"invoice/default: written, version 1"}},
		{[]string{"push", copied, "--dry-run"}, []string{"invoice/default: unchanged", "invoice/pt: unchanged"}},
		{[]string{"preview", "invoice", "--data", data}, []string{"Subject: Invoice 7\n", "<p>customer</p>", "<li>&lt;b&gt;</li>"}},
		{[]string{"preview", "invoice", "--data", data, "--locale", "pt-BR"}, []string{"invoice/pt, version 1", "Subject: Nota 7\n"}},
	}
	for _, step := range steps {
		got := tenant.must(t, append([]string{"template"}, step.args...)...)
		for _, want := range step.want {
			if !strings.Contains(got, want) {
				t.Errorf("%v: %s, want %s", step.args, got, want)
			}
		}
	}
	for name, want := range files {
		if name == "invoice/pt/template.json" {
			continue
		}
		if got, err := os.ReadFile(filepath.Join(copied, name)); err != nil || string(got) != want {
			t.Errorf("pulled %s: %q, %v, want %q", name, got, err, want)
		}
	}
	writeFiles(t, dir, map[string]string{"invoice/default/body.html": "<p>{{name}}</p>\n<ol>{{#lines}}<li>{{.}}</li>{{/lines}}</ol>\n"})
	got := tenant.must(t, "template", "push", dir, "--publish")
	if !strings.Contains(got, "invoice/default: created and published, version 2") || !strings.Contains(got, "- <ul>") || !strings.Contains(got, "+ <ol>") || strings.Contains(got, "- <p>") {
		t.Errorf("%s", got)
	}
	writeFiles(t, dir, map[string]string{"invoice/default/body.html": "<p>{{{name}}}</p>"})
	if got := tenant.run(t, "template", "push", dir); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "line 1, column 4") {
		t.Errorf("%+v", got)
	}
	if got := tenant.run(t, "template", "push", t.TempDir()); got.code != ctl.ExitUsage {
		t.Errorf("%+v", got)
	}
}

// A mailing is created with a stored template, and the answer names its version.
func TestTemplate_Mailing(t *testing.T) {
	t.Parallel()
	tenant, _, _ := newTenant(t)
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"aviso/default/subject.txt": "Aviso {{nome}}\n", "aviso/default/body.txt": "{{#cidade}}{{nome}} de {{cidade}}{{/cidade}} {{unsubscribe_url}}\n",
		"aviso.csv": "email;nome;cidade\nana@example.com;Ana;Recife\n",
	})
	tenant.must(t, "template", "push", dir, "--publish")
	made := tenant.must(t, "mailing", "create", "--file", filepath.Join(dir, "aviso.csv"), "--template", "aviso", "--locale", "pt-BR", "--version", "1", "--dry-run")
	if !strings.Contains(made, "It uses version 1 of the template aviso/default.") || !strings.Contains(made, "Aviso Ana") || strings.Contains(made, "Warning") {
		t.Errorf("%s", made)
	}
}
