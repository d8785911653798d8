package fault_test

import (
	"testing"
	"time"

	"email-gateway/scripts/chaos/fault"
)

// Every kind is in one class, and no class is empty.
func TestReach(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kind, subject string
		want          fault.Reach
	}{
		"an api":           {"api-kill", "api-1", fault.ReachesNone},
		"tenants' link":    {"client-cut", "every:api", fault.ReachesNone},
		"the broker":       {"rabbitmq-kill", "rabbitmq", fault.ReachesNone},
		"its link":         {"rabbitmq-cut", "every:rabbitmq", fault.ReachesNone},
		"the storage":      {"s3-kill", "s3", fault.ReachesNone},
		"a company's lane": {"operator-lanes", "Caos 1", fault.ReachesNone},
		"a worker":         {"worker-freeze", "worker-2", fault.ReachesSome},
		"a dispatcher":     {"dispatcher-kill", "dispatcher-1", fault.ReachesSome},
		"one link":         {"postgres-cut", "worker-1:postgres", fault.ReachesSome},
		"every link":       {"ses-hang", "every:ses", fault.ReachesAll},
		"redis":            {"redis-flush", "redis", fault.ReachesAll},
		"ses":              {"ses-throttle", "ses", fault.ReachesAll},
		"all lanes":        {"operator-gate", "gate", fault.ReachesAll},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := (fault.Injected{Kind: tt.kind, Subject: tt.subject}).Reach(); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
	seen := make(map[fault.Reach]bool)
	for _, k := range fault.Kinds() {
		for _, subject := range k.Subjects {
			seen[fault.Injected{Kind: k.Name, Subject: subject}.Reach()] = true
		}
	}
	if len(seen) != 3 {
		t.Errorf("classes %v", seen)
	}
}

// Overlapping times count once, times outside the run do not count.
func TestOutage(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(kind, subject string, from, to int) fault.Injected {
		return fault.Injected{Kind: kind, Subject: subject, From: start.Add(time.Duration(from) * time.Second), To: start.Add(time.Duration(to) * time.Second)}
	}
	injected := []fault.Injected{
		at("redis-kill", "redis", 30, 35), at("postgres-kill", "postgres", -5, 2), at("postgres-pause", "postgres", 1, 6),
		at("ses-down", "ses", 32, 33), at("worker-freeze", "worker-1", 10, 80), at("ses-drop", "ses", 58, 70),
	}
	if got := fault.Outage(injected, start, start.Add(time.Minute)); got != 13*time.Second {
		t.Errorf("%s, want 13s", got)
	}
}
