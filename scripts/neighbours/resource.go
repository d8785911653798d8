package neighbours

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// resource is a shared resource and its misuse by one company.
type resource struct {
	name string
	what string // description of the misuse
	// short includes it in the short run.
	short bool
	// windows is the number of windows that an email may wait; 0 = 1. It is 2 if SES accepts half
	// of the rate for which the window was filled.
	windows int
	// backoff is the wait before a retry, which emails of the quiet company may need too.
	backoff time.Duration
	// uploads also measures the quiet company's uploads of mailings.
	uploads bool
	// deliveries limits the time in which the quiet company's events reach its webhook endpoint too.
	deliveries bool
	// prepare sets up the misuse before the measurement; nil = nothing.
	prepare func(ctx context.Context, s *scenario) error
	// misuse runs until ctx ends.
	misuse func(ctx context.Context, s *scenario) error
	// restore reverts effects that would disturb the next measurement; nil = nothing.
	restore func(ctx context.Context, s *scenario) error
}

// resources returns all resources in the order of the run: those that leave millions of rows come
// last.
func resources() []resource {
	return slices.Concat(
		bodies(), anonymousRoutes(), aggregates(), queues(), commands(), webhooks(), imports(), backlogs(),
	)
}

// Names returns the resources' names.
func Names() []string {
	var names []string
	for _, r := range resources() {
		names = append(names, r.name)
	}
	return names
}

// choose returns resources by name, separated by commas.
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
