// Package programtest runs a program of scripts/cmd in the test of its package.
package programtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"email-gateway/scripts/local/programs"
)

// Run builds the program in the test's directory and runs it. It reads the report that the program writes, and returns
// what it printed and whether it exited with 0. The program has no race detector, which would distort its measurements.
func Run(t *testing.T, report any, args ...string) (out []byte, ok bool) {
	t.Helper()
	bin := t.TempDir()
	if err := programs.Build(t.Context(), ".", bin, "."); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(bin, "report.json")
	out, err = exec.CommandContext(t.Context(), filepath.Join(bin, filepath.Base(dir)), append(args, "-json", file)...).CombinedOutput()
	t.Logf("%s", out)
	text, reading := os.ReadFile(file)
	if reading != nil {
		t.Fatalf("no report: %v", err)
	}
	if err := json.Unmarshal(text, report); err != nil {
		t.Fatal(err)
	}
	return out, err == nil
}
