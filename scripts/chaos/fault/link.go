package fault

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"email-gateway/scripts/chaos/cluster"
)

// linkKinds returns the faults of the links between components. "client" is the link from the
// tenants to the apis.
func linkKinds() []Kind {
	var kinds []Kind
	for _, way := range []struct {
		name, dependency string
		heal             time.Duration
	}{
		{"client", cluster.API, healEvent},
		{"postgres", cluster.Postgres, healSoon},
		{"redis", cluster.Redis, healTask},
		{"rabbitmq", cluster.RabbitMQ, healJob},
		{"s3", cluster.S3, healStorage},
		{"ses", cluster.SES, healCall},
	} {
		subjects := append(cluster.LinkNames(way.dependency), everyLink+way.dependency)
		for _, k := range []Kind{
			{Name: "delay", Weight: 2, Shortest: seconds(1), Longest: seconds(10), make: newDelay},
			{Name: "cut", Weight: 2, Shortest: seconds(0.1), Longest: seconds(8), make: newCut},
			{Name: "hang", Weight: 1, Shortest: seconds(1), Longest: seconds(8), make: newHang},
			{Name: "trickle", Weight: 1, Shortest: seconds(1), Longest: seconds(6), make: newTrickle},
			{Name: "snap", Weight: 2, Shortest: seconds(0.5), Longest: seconds(3), make: newSnap},
		} {
			k.Name, k.Heal, k.Subjects = way.name+"-"+k.Name, way.heal, subjects
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// links returns the links of a subject.
func links(c *cluster.Cluster, subject string) []*cluster.Link {
	var some []*cluster.Link
	for _, name := range components(subject) {
		some = append(some, c.Link(name))
	}
	return some
}

// each calls work for all links concurrently.
func each(links []*cluster.Link, work func(*cluster.Link) error) error {
	errs := make([]error, len(links))
	var working sync.WaitGroup
	for i, l := range links {
		working.Go(func() { errs[i] = work(l) })
	}
	working.Wait()
	return errors.Join(errs...)
}

func withToxics(c *cluster.Cluster, subject string, toxics ...cluster.Toxic) Fault {
	some := links(c, subject)
	return hooks{
		begin: func(ctx context.Context) error {
			return each(some, func(l *cluster.Link) error { return l.AddToxics(ctx, toxics...) })
		},
		end: func(ctx context.Context) error {
			return each(some, func(l *cluster.Link) error { return l.RemoveToxics(ctx) })
		},
	}
}

// newCut closes connections and refuses new ones.
func newCut(c *cluster.Cluster, subject string, _ *rand.Rand) Fault {
	some := links(c, subject)
	return hooks{
		begin: func(ctx context.Context) error {
			return each(some, func(l *cluster.Link) error { return l.Cut(ctx) })
		},
		end: func(ctx context.Context) error {
			return each(some, func(l *cluster.Link) error { return l.Restore(ctx) })
		},
	}
}

// newDelay delays responses.
func newDelay(c *cluster.Cluster, subject string, random *rand.Rand) Fault {
	latency := 20 + random.IntN(400)
	return withToxics(c, subject, cluster.Toxic{
		Type: "latency", Stream: "downstream", Attributes: map[string]any{"latency": latency, "jitter": latency / 2},
	})
}

// newHang keeps connections open and drops all data, so that each side must detect it by a timeout.
func newHang(c *cluster.Cluster, subject string, random *rand.Rand) Fault {
	// If only responses are dropped, the request is executed.
	answers := cluster.Toxic{Type: "timeout", Stream: "downstream", Attributes: map[string]any{"timeout": 0}}
	if random.IntN(2) == 0 {
		return withToxics(c, subject, answers)
	}
	return withToxics(c, subject, answers, cluster.Toxic{Type: "timeout", Stream: "upstream", Attributes: map[string]any{"timeout": 0}})
}

// newTrickle limits the bandwidth to a few kilobytes per second.
func newTrickle(c *cluster.Cluster, subject string, random *rand.Rand) Fault {
	return withToxics(c, subject, cluster.Toxic{Type: "bandwidth", Stream: "downstream", Attributes: map[string]any{"rate": 2 + random.IntN(30)}})
}

// newSnap closes each connection after a number of bytes, in the middle of a response.
func newSnap(c *cluster.Cluster, subject string, random *rand.Rand) Fault {
	return withToxics(c, subject, cluster.Toxic{Type: "limit_data", Stream: "downstream", Attributes: map[string]any{"bytes": 100 + random.IntN(6000)}})
}
