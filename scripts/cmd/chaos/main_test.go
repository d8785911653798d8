package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"email-gateway/scripts/chaos"
	"email-gateway/scripts/chaos/checker"
)

// seed makes the tests inject the same faults at the same times; CHAOS_SEED sets another one.
func seed() string {
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		return text
	}
	return "1"
}

// run builds the program, without the race detector, which would distort its measurements, and
// returns its report and whether it passed.
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
		t.Fatalf("no report: %v", err)
	}
	var report chaos.Report
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if report.OK() != (err == nil) {
		t.Errorf("report OK: %v; the program exited with %v", report.OK(), err)
	}
	return report, err == nil
}

// The program's own minimums ensure enough faults in a minute. It ends when the gateway is idle:
// how long that takes depends on the load of the machine, so the limit is longer, but below
// EMAIL_TTL (5 min), after which emails expire.
func TestMinute(t *testing.T) {
	report, ok := run(t, "-duration", "60s", "-settle", "3m", "-seed", seed())
	if !ok {
		t.Errorf("settled after %.1f s; below %v, failed %v, findings %+v", report.Settled, report.Below, report.Failed, report.Findings)
	}
}

// The checker detects a gateway that sends every delivered task: a Redis that lost its last second
// of writes delivers finished tasks again.
func TestMissingFence(t *testing.T) {
	report, ok := run(t, "-duration", "15s", "-settle", "10s", "-quiet", "0s", "-seed", seed(), "-overlay", "scripts/chaos/nofence.json", "-only", "redis-powercut")
	if ok || report.FindingCount(checker.Duplicate) == 0 {
		t.Errorf("no duplicate was found: ok %v, findings %+v", ok, report.Findings)
	}
}
