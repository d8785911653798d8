package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"email-gateway/scripts/chaos"
	"email-gateway/scripts/chaos/judge"
)

// seed makes the tests break the same things at the same times; CHAOS_SEED names
// another one.
func seed() string {
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		return text
	}
	return "1"
}

// run builds the program, without the race detector, which would be most of what it
// measures, and returns its report and whether it was content.
func run(t *testing.T, args ...string) (chaos.Report, bool) {
	t.Helper()
	dir := t.TempDir()
	program, file := filepath.Join(dir, "chaos"), filepath.Join(dir, "report.json")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, append(args, "-json", file)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	t.Logf("%s", out.Bytes())
	text, reading := os.ReadFile(file)
	if reading != nil {
		t.Fatalf("there is no report: %v", err)
	}
	var report chaos.Report
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if report.OK() != (err == nil) {
		t.Errorf("the report is good: %v; the program ended with %v", report.OK(), err)
	}
	return report, err == nil
}

// The program's own minimums make this a minute in which enough was broken. It ends when all is
// settled: how long that takes says how busy the machine is, so the limit is
// beyond that, and below EMAIL_TTL (5 min), after which emails expire.
func TestMinute(t *testing.T) {
	report, ok := run(t, "-duration", "60s", "-settle", "3m", "-seed", seed())
	if !ok {
		t.Errorf("settled after %.1f s; below %v, failed %v, findings %+v", report.Settled, report.Below, report.Failed, report.Findings)
	}
}

// A gateway that sends whatever the queue delivers is found out: a Redis that loses its
// last second delivers what is done again.
func TestMissingFence(t *testing.T) {
	report, ok := run(t, "-duration", "15s", "-settle", "10s", "-quiet", "0s", "-seed", seed(), "-overlay", "scripts/chaos/nofence.json", "-only", "redis-powercut")
	if ok || report.Found(judge.Duplicate) == 0 {
		t.Errorf("nothing was found: content %v, findings %+v", ok, report.Findings)
	}
}
