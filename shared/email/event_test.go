package email_test

import (
	"slices"
	"testing"

	"email-gateway/shared/email"
)

func TestEventTypes_SortedAndComplete(t *testing.T) {
	t.Parallel()
	types := email.EventTypes()
	if len(types) != 24 || !slices.IsSorted(types) || types[0] == "" {
		t.Errorf("got %q, want 24 sorted names", types)
	}
}
