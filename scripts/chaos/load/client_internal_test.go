package load

import (
	"fmt"
	"testing"
	"time"
)

// An api that let a request wait in vain gets none for a while, then a single one, and
// all again when that was answered.
func TestAnyAPI(t *testing.T) {
	t.Parallel()
	c := newClient([]string{"a", "b"}, 1)
	drawn := func() string {
		seen := make(map[string]bool)
		for range 50 {
			seen[c.anyAPI()] = true
		}
		return fmt.Sprint(seen)
	}
	if got := drawn(); got != "map[a:true b:true]" {
		t.Errorf("at first: %s", got)
	}
	c.judge("a", true)
	if got := drawn(); got != "map[b:true]" {
		t.Errorf("when one is avoided: %s", got)
	}
	c.avoid["a"] = time.Now() // the time is over
	tries := 0
	for range 50 {
		if c.anyAPI() == "a" {
			tries++
		}
	}
	if tries != 1 {
		t.Errorf("%d requests tried it, want 1", tries)
	}
	c.judge("a", false)
	if got := drawn(); got != "map[a:true b:true]" {
		t.Errorf("when it answers again: %s", got)
	}
	c.judge("a", true)
	c.judge("b", true)
	if got := drawn(); got != "map[a:true b:true]" {
		t.Errorf("when both are avoided: %s", got)
	}
}

func TestWithDoomed(t *testing.T) {
	t.Parallel()
	for mailings := range 100 {
		all, left := withDoomed(mailings), 0
		for n := range all {
			if !doomed(n) {
				left++
			}
		}
		if left < mailings || left > mailings+1 {
			t.Errorf("%d uploads leave %d mailings, want %d", all, left, mailings)
		}
	}
}
