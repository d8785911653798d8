package load

import "testing"

func TestWithCancelled(t *testing.T) {
	t.Parallel()
	for mailings := range 100 {
		all, left := withCancelled(mailings), 0
		for n := range all {
			if !isCancelled(n) {
				left++
			}
		}
		if left < mailings || left > mailings+1 {
			t.Errorf("%d uploads leave %d mailings, want %d", all, left, mailings)
		}
	}
}
