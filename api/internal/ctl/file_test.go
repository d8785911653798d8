package ctl_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFile(t *testing.T) {
	t.Parallel()
	tenant, _, _ := newTenant(t)
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"nota.txt": "Nota fiscal", "termos.txt": "Termos"})
	uploaded := tenant.must(t, "file", "upload", filepath.Join(dir, "termos.txt"))
	id := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).FindString(uploaded)
	if id == "" || !strings.Contains(uploaded, "6 bytes") {
		t.Fatal(uploaded)
	}
	if listed := tenant.must(t, "file", "list"); !strings.Contains(listed, id) || !strings.Contains(listed, "text/plain") {
		t.Error(listed)
	}
	sent := tenant.must(t, "email", "send", "--to", "ana@example.com", "--external-id", "42", "--subject", "Nota", "--text", "Nota",
		"--attach", filepath.Join(dir, "nota.txt"), "--attach", id+"=termos de uso.txt", "--json")
	email := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).FindString(sent)
	if diff := cmp.Diff(get(t, tenant, "/v1/email/"+email)["attachments"], tenant.object(t, "email", "show", email)["attachments"]); diff != "" {
		t.Errorf("attachments (-api +gatewayctl):\n%s", diff)
	}
	shown := tenant.must(t, "email", "show", email)
	for _, want := range []string{"nota.txt (text/plain; charset=utf-8, 11 bytes)", "termos de uso.txt (text/plain; charset=utf-8, 6 bytes)"} {
		if !strings.Contains(shown, want) {
			t.Errorf("show has no %q:\n%s", want, shown)
		}
	}
}
