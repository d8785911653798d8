package e2e_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The key that dev.sh makes has every scope that gatewayctl lists.
func TestDev_KeyHasEveryScope(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	script := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", `source scripts/dev.d/key.sh && demo_key && echo "$COMPANY_ID"`)
	script.Dir = rootDir
	script.Env = []string{"PATH=/usr/bin:/bin", "bin=" + binDir, "LOCAL_DIR=" + t.TempDir(), "DATABASE_URL=" + s.db.URL}
	company, err := script.Output()
	if err != nil {
		t.Fatal(err)
	}
	var listed struct{ Keys []struct{ Scopes []string } }
	if err := json.Unmarshal([]byte(s.gatewayctl("key", "list", "--company", strings.TrimSpace(string(company)), "--json")), &listed); err != nil || len(listed.Keys) != 1 {
		t.Fatalf("keys %+v: %v", listed, err)
	}
	help := s.gatewayctl("key", "create", "--help")
	_, scopes, _ := strings.Cut(help, "\nScopes:\n")
	scopes, _, _ = strings.Cut(scopes, "\n\n")
	want := strings.Fields(scopes)
	slices.Sort(want)
	if slices.Sort(listed.Keys[0].Scopes); len(want) < 10 || !slices.Equal(want, listed.Keys[0].Scopes) {
		t.Errorf("the key has the scopes %v, want %v", listed.Keys[0].Scopes, want)
	}
}
