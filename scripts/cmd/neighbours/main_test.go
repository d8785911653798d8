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

// The short run misuses and measures each of its resources, refuses no request of the quiet company, and exits with 0 if and
// only if every limit was met. The limits themselves are not tested: they depend on the machine and its other load.
func TestShort(t *testing.T) {
	dir := t.TempDir()
	program, file := filepath.Join(dir, "neighbours"), filepath.Join(dir, "report.json")
	// Without the race detector, which would distort the measurement.
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, "-short", "-measure", "2s", "-json", file)
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
	if missed := report.Missed(); (err == nil) != (len(missed) == 0) {
		t.Errorf("missed %v, the program exited with %v", missed, err)
	}
	if len(report.Rows) < 3 {
		t.Errorf("%d resources were measured", len(report.Rows))
	}
	for _, row := range report.Rows {
		if len(row.Misuse) == 0 {
			t.Errorf("%s: nothing was misused", row.Resource)
		}
		if row.Seen.Sending.Count == 0 {
			t.Errorf("%s: no email reached SES", row.Resource)
		}
		for kind, figures := range row.Seen.Requests {
			if figures.Count == 0 || len(figures.Refused) > 0 {
				t.Errorf("%s, %s: %d requests, refused: %v", row.Resource, kind, figures.Count, figures.Refused)
			}
		}
	}
}
