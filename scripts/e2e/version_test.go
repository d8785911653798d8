package e2e_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// All programs of a build print the same version.
func TestVersion(t *testing.T) {
	t.Parallel()
	versions := map[string]bool{}
	for program, flag := range map[string]string{"api": "-version", "dispatcher": "-version", "worker": "-version", "gatewayctl": "--version"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(binDir, program), flag).Output()
		version, named := strings.CutPrefix(string(out), program+" ")
		if err != nil || !named || strings.TrimSpace(version) == "" {
			t.Errorf("%s %s: %v, %q", program, flag, err, out)
		}
		versions[version] = true
	}
	if len(versions) != 1 {
		t.Errorf("the programs of one build say %v", versions)
	}
}
