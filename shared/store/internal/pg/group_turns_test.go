package pg_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// A company with many large items does not make the small ones of others wait for them all,
// and each company's items stay in their order.
func TestGroup_CompaniesTakeTurns(t *testing.T) {
	t.Parallel()
	large := func(company string, n, size int) (items []string) {
		for i := range n {
			items = append(items, fmt.Sprintf("%s%d/%s", company, i, strings.Repeat("-", size)))
		}
		return items
	}
	for name, tt := range map[string]struct {
		items []string
		want  [][]string // keys, by group
	}{
		"small ones fit beside a large one": {
			append(large("a", 3, 700<<10), "b0", "b1", "c0"),
			[][]string{{"x"}, {"a0", "b0", "b1", "c0"}, {"a1"}, {"a2"}},
		},
		"or come right behind it": {
			append(large("a", 3, 2<<20), "b0", "b1", "c0"),
			[][]string{{"x"}, {"a0"}, {"b0", "b1", "c0"}, {"a1"}, {"a2"}},
		},
		"one company's are written as they came": {
			large("a", 3, 700<<10), [][]string{{"x"}, {"a0"}, {"a1"}, {"a2"}},
		},
		"more rows than a group holds": {
			append(large("a", 300, 1), "b0"), [][]string{{"x"}, {"32"}, {"256 with b0"}, {"13"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &writer{proceed: make(chan struct{})}
				g := newGroup(w).FairBy(func(item string) uuid.UUID { return uuid.UUID{item[0]} })
				first := all(t.Context(), g, "x")
				rest := all(t.Context(), g, tt.items...)
				close(w.proceed)
				first()
				for i, got := range rest() {
					if got.result != "wrote "+tt.items[i] || got.err != nil {
						t.Errorf("item %.10s got %.20s, %v", tt.items[i], got.result, got.err)
					}
				}
				if diff := cmp.Diff(tt.want, keysOf(w.groups)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// keysOf are the groups' keys; of a group with many, how many they are and whether b0 is one.
func keysOf(groups [][]string) (all [][]string) {
	for _, group := range groups {
		var keys []string
		with := ""
		for _, item := range group {
			key, _, _ := strings.Cut(item, "/")
			if keys = append(keys, key); key == "b0" {
				with = " with b0"
			}
		}
		if len(keys) > 10 {
			keys = []string{fmt.Sprint(len(keys), with)}
		}
		all = append(all, keys)
	}
	return all
}
