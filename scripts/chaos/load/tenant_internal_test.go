package load

import "testing"

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
