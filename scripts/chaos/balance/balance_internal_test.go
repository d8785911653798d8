package balance

import (
	"fmt"
	"testing"
	"time"
)

// A failed api gets no requests for a while, then a single one, and its share of all after a
// success.
func TestBalancer(t *testing.T) {
	t.Parallel()
	b := New([]string{"a", "b"}, 1)
	drawn := func() string {
		seen := make(map[string]bool)
		for range 50 {
			seen[b.Pick()] = true
		}
		return fmt.Sprint(seen)
	}
	if got := drawn(); got != "map[a:true b:true]" {
		t.Errorf("at first: %s", got)
	}
	b.Note("a", true)
	if got := drawn(); got != "map[b:true]" {
		t.Errorf("when one is avoided: %s", got)
	}
	b.avoid["a"] = time.Now() // the time is over
	tries := 0
	for range 50 {
		if b.Pick() == "a" {
			tries++
		}
	}
	if tries != 1 {
		t.Errorf("%d requests tried it, want 1", tries)
	}
	b.Note("a", false)
	if got := drawn(); got != "map[a:true b:true]" {
		t.Errorf("when it answers again: %s", got)
	}
	b.Note("a", true)
	b.Note("b", true)
	if got := drawn(); got != "map[a:true b:true]" {
		t.Errorf("when both are avoided: %s", got)
	}
}
