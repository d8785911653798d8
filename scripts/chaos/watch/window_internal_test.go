package watch

import "testing"

// A queue that was within its limit when the limit shrank may drain, and may not grow.
func TestDraining(t *testing.T) {
	t.Parallel()
	w := &Watch{}
	for i, look := range []struct {
		tasks, limit int64
		restarted    bool
		want         bool
	}{
		{500, 564, false, false},
		{490, 215, false, true},
		{242, 215, false, true},
		{250, 215, false, false}, // one was let in
		{240, 215, false, true},
		{488, 215, true, true}, // those that Redis has again
		{470, 215, false, true},
		{480, 215, false, false},
		{200, 215, false, false},
		{216, 215, false, false},
	} {
		if got := w.draining("email:send:low", look.tasks, look.limit, look.restarted); got != look.want {
			t.Errorf("look %d, %d tasks of %d: draining %v", i, look.tasks, look.limit, got)
		}
	}
}
