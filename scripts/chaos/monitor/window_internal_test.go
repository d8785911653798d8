package monitor

import "testing"

// A queue that exceeds its limit because the limit shrank may drain, but not grow.
func TestDraining(t *testing.T) {
	t.Parallel()
	w := &Monitor{}
	for i, look := range []struct {
		tasks, limit int64
		restarted    bool
		want         bool
	}{
		{500, 564, false, false},
		{490, 215, false, true},
		{242, 215, false, true},
		{250, 215, false, false}, // one was added
		{240, 215, false, true},
		{488, 215, true, true}, // finished tasks are on the queue again
		{470, 215, false, true},
		{480, 215, false, false},
		{200, 215, false, false},
		{216, 215, false, false},
		{200, 215, false, false}, // without having drained
		{300, 350, false, false},
		{290, 215, false, true},
		{215, 215, false, true}, // from above
		{194, 215, false, true},
		{195, 215, false, false}, // one was added
		{193, 215, false, false},
		{214, 215, false, false},
	} {
		if got := w.draining("email:send:low", look.tasks, look.limit, look.restarted); got != look.want {
			t.Errorf("look %d, %d tasks of %d: draining %v", i, look.tasks, look.limit, got)
		}
	}
}
