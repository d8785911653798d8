package service_test

import (
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"email-gateway/shared/service"
)

func TestTradeMemory(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	for gogc, want := range map[string]int{"200": 100, "off": 100, "": 300} { // what GOGC says, the runtime has done
		t.Setenv("GOGC", gogc)
		service.TradeMemory()
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC %q: %d %%, want %d", gogc, got, want)
		}
	}
}

// TestBallast looks at how large the heap may grow before it is collected.
func TestBallast(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	const ballast = 64 << 20
	for _, rule := range []struct{ gogc, limit string }{{"", ""}, {"200", ""}, {"", "1GiB"}} {
		t.Setenv("GOGC", rule.gogc)
		t.Setenv("GOMEMLIMIT", rule.limit)
		before := heapGoal()
		drop := service.Ballast(ballast)
		more := heapGoal() - before
		if stands := rule.gogc == "" && rule.limit == ""; stands != (more > ballast) {
			t.Errorf("GOGC %q, GOMEMLIMIT %q: the heap may grow by %d bytes more", rule.gogc, rule.limit, more)
		}
		drop()
	}
}

// heapGoal is in bytes, as of a collection now.
func heapGoal() int64 {
	debug.FreeOSMemory() // a whole collection, sweep included
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(goal)
	return int64(goal[0].Value.Uint64()) //nolint:gosec // far below 2^63
}
