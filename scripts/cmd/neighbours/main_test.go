package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"email-gateway/scripts/neighbours"
)

// The short run meets every limit. Other tests use the same CPU, so a resource that misses a limit
// is measured again: a real delay occurs each time.
func TestShort(t *testing.T) {
	dir := t.TempDir()
	program, file := filepath.Join(dir, "neighbours"), filepath.Join(dir, "report.json")
	// Without the race detector, which would distort the measurement.
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, "-short", "-measure", "3s", "-tries", "3", "-json", file)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	t.Logf("%s", out.Bytes())
	text, reading := os.ReadFile(file)
	if reading != nil {
		t.Fatalf("no report: %v", err)
	}
	var report neighbours.Report
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if missed := report.Missed(); len(missed) > 0 || err != nil {
		t.Errorf("missed %v, the program exited with %v", missed, err)
	}
	if len(report.Rows) < 3 {
		t.Errorf("%d resources were measured", len(report.Rows))
	}
}
