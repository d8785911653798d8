package fault_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/fault"
)

// step has the comparable fields of a fault.Step.
type step struct {
	At, Length time.Duration
	Kind       string
	Subject    string
	Seed       uint64
}

func steps(plan []fault.Step) []step {
	list := make([]step, len(plan))
	for i, s := range plan {
		list[i] = step{s.At, s.Length, s.Kind.Name, s.Subject, s.Seed}
	}
	return list
}

func TestPlan_SameSeedSamePlan(t *testing.T) {
	t.Parallel()
	scope := fault.Scope{Seed: 7, Duration: time.Minute, Settle: time.Minute, Faults: 15}
	first, second := fault.Plan(scope, fault.Kinds()), fault.Plan(scope, fault.Kinds())
	if diff := cmp.Diff(steps(first), steps(second)); diff != "" || len(first) < 10 {
		t.Errorf("%d faults; %s", len(first), diff)
	}
	scope.Seed = 8
	if other := fault.Plan(scope, fault.Kinds()); cmp.Equal(steps(first), steps(other)) {
		t.Error("another seed made the same plan")
	}
}

// For any seed: enough faults of enough kinds, one at a time per component, and enough time for the
// recovery from each.
func TestPlan_Fits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		scope := fault.Scope{Seed: rapid.Uint64().Draw(t, "seed"), Duration: time.Minute, Settle: time.Minute, Faults: 15}
		plan := fault.Plan(scope, fault.Kinds())
		kinds := make(map[string]bool)
		for i, s := range plan {
			kinds[s.Kind.Name] = true
			if end := s.At + s.Length; end+s.Kind.Heal > scope.Duration+scope.Settle {
				t.Fatalf("%s ends at %s and heals in %s", s.Kind.Name, end, s.Kind.Heal)
			}
			for _, other := range plan[i+1:] {
				if s.Subject == other.Subject && other.At < s.At+s.Length {
					t.Fatalf("%s overlaps %s at %s on %s", s.Kind.Name, other.Kind.Name, other.At, s.Subject)
				}
			}
		}
		if len(plan) < 12 || len(kinds) < 8 {
			t.Fatalf("%d faults of %d kinds", len(plan), len(kinds))
		}
	})
}

func TestPlan_KillsEverything(t *testing.T) {
	t.Parallel()
	plan := fault.Plan(fault.Scope{Seed: 3, Duration: 20 * time.Minute, Settle: time.Minute, Faults: 300, Kills: 12}, fault.Kinds())
	kills := make(map[string]int)
	for _, s := range plan {
		if s.Kind.Kills {
			kills[s.Subject]++
		}
	}
	for _, component := range append(cluster.ProgramNames(""), cluster.ServiceNames()...) {
		if kills[component] < 12 {
			t.Errorf("%s is killed %d times", component, kills[component])
		}
	}
	if len(plan) < 250 {
		t.Errorf("%d faults", len(plan))
	}
}

func TestOnly(t *testing.T) {
	t.Parallel()
	some, err := fault.Only("redis-flush,worker-kill")
	if err != nil || !slices.Equal(fault.Names(some), []string{"redis-flush", "worker-kill"}) {
		t.Errorf("%v, %v", fault.Names(some), err)
	}
	if all, err := fault.Only(""); err != nil || len(all) != len(fault.Kinds()) {
		t.Errorf("%d kinds, %v", len(all), err)
	}
	if _, err := fault.Only("redis-flush,redis-flood"); err == nil || !strings.Contains(err.Error(), `"redis-flood"`) || !strings.Contains(err.Error(), "redis-full") {
		t.Errorf("%v", err)
	}
}

// Each kind is complete and has a unique name.
func TestKinds(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, k := range fault.Kinds() {
		if seen[k.Name] || k.Weight <= 0 || len(k.Subjects) == 0 || k.Heal <= 0 || k.Longest < k.Shortest {
			t.Errorf("%+v", k)
		}
		seen[k.Name] = true
	}
	if len(seen) < 12 {
		t.Errorf("%d kinds", len(seen))
	}
}
