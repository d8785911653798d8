package person

import (
	"strings"
	"testing"
)

// An erasure is incomplete while Redis may hold a task with the person's address.
func TestPersonErase_OpenTask(t *testing.T) {
	t.Parallel()
	if err := erasureFailure(1); err == nil || !strings.Contains(err.Error(), "1 task may still be in Redis") {
		t.Errorf("got %v", err)
	}
	if err := erasureFailure(0); err != nil {
		t.Error(err)
	}
}

// erasureFailure returns the error of an erasure that is complete except for tasks in Redis.
func erasureFailure(openTasks int) error {
	v := erased{}
	v.Receipt.Tasks.Open = openTasks
	return v.Failure()
}
