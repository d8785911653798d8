package fairloop_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/worker/internal/fairloop"
)

// A pass without time gives each company one turn; one with time processes everything, still in turns.
func TestPass(t *testing.T) {
	t.Parallel()
	type item struct {
		company uuid.UUID
		name    string
	}
	many, few := uuid.New(), uuid.New()
	items := []item{{many, "a1"}, {many, "a2"}, {many, "a3"}, {few, "b1"}, {few, "b2"}, {uuid.Nil, "all"}}
	for _, c := range []struct {
		name  string
		limit time.Duration
		want  []string
		left  bool
	}{
		{"no time", 0, []string{"a1", "b1", "all"}, true},
		{"enough time", time.Hour, []string{"a1", "b1", "all", "a2", "b2", "a3"}, false},
	} {
		var got []string
		left := fairloop.Pass(items, func(i item) uuid.UUID { return i.company }, c.limit, func(i item) { got = append(got, i.name) })
		if diff := cmp.Diff(c.want, got); diff != "" || left != c.left {
			t.Errorf("%s: left %v, (-want +got)\n%s", c.name, left, diff)
		}
	}
	if fairloop.Pass(items[3:4], func(i item) uuid.UUID { return i.company }, 0, func(item) {}) {
		t.Error("an item is left of one")
	}
}
