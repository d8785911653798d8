package watch

import "testing"

// A queue that was within its limit when the limit shrank may drain, and may not grow.
func TestDraining(t *testing.T) {
	t.Parallel()
	w := &Watch{}
	for i, look := range []struct {
		tasks, limit int64
		want         bool
	}{
		{500, 564, false}, {490, 215, true}, {242, 215, true}, {250, 215, false}, {240, 215, true}, {200, 215, false}, {216, 215, false},
	} {
		if got := w.draining("email:send:low", look.tasks, look.limit); got != look.want {
			t.Errorf("look %d, %d tasks of %d: draining %v", i, look.tasks, look.limit, got)
		}
	}
}
