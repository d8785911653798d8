package main_test

import (
	"os"
	"testing"

	"email-gateway/scripts/chaos"
	"email-gateway/scripts/chaos/checker"
	"email-gateway/scripts/local/programtest"
)

// seed makes the tests inject the same faults at the same times; CHAOS_SEED sets another one.
func seed() string {
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		return text
	}
	return "1"
}

// run runs the program and returns its report and whether it passed.
func run(t *testing.T, args ...string) (report chaos.Report, ok bool) {
	t.Helper()
	if _, ok = programtest.Run(t, &report, args...); report.OK() != ok {
		t.Errorf("report OK: %v; the program exited with 0: %v", report.OK(), ok)
	}
	return report, ok
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
