package ctl_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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
	shown := tenant.must(t, "email", "show", regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).FindString(sent), "--json")
	if !strings.Contains(sent, "PENDING") || shown == "" {
		t.Errorf("%s %s", sent, shown)
	}
}
