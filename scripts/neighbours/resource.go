package neighbours

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// resource is something that all companies share, and how one of them misuses it.
type resource struct {
	name string
	what string // how it is misused
	// short puts it into the short run.
	short bool
	// windows is how many windows an email may wait; 0 = 1. It is 2 where SES takes half of the
	// rate by which the window was filled.
	windows int
	// backoff is the wait for another try that emails of the quiet company meet too.
	backoff time.Duration
	// uploads measures the other company's uploads of mailings too.
	uploads bool
	// prepare makes what the misuse needs, before the measurement; nil = nothing.
	prepare func(ctx context.Context, s *scene) error
	// misuse goes on until ctx ends.
	misuse func(ctx context.Context, s *scene) error
	// restore undoes what would disturb the next measurement; nil = nothing.
	restore func(ctx context.Context, s *scene) error
}

// resources are all there are, in the order in which they are run: those that leave millions of
// rows behind come last.
func resources() []resource {
	return slices.Concat(
		bodies(), strangers(), aggregates(), queues(), commands(), intakes(), backlogs(),
	)
}

// Names are the resources' names.
func Names() []string {
	var names []string
	for _, r := range resources() {
		names = append(names, r.name)
	}
	return names
}

// choose picks resources by their names, separated by commas.
func choose(names string, short bool) ([]resource, error) {
	all := resources()
	if names == "" {
		return slices.DeleteFunc(all, func(r resource) bool { return short && !r.short }), nil
	}
	var chosen []resource
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(r resource) bool { return r.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("there is no resource %q; there are %s", name, strings.Join(Names(), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
