package service_test

import (
	"runtime/debug"
	"testing"

	"email-gateway/shared/service"
)

func TestSetDefaultGCPercent(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	for gogc, want := range map[string]int{"200": 100, "off": 100, "": 300} { // the runtime has already applied GOGC
		t.Setenv("GOGC", gogc)
		service.SetDefaultGCPercent()
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC %q: %d %%, want %d", gogc, got, want)
		}
	}
}
