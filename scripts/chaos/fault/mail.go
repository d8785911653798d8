package fault

import (
	"context"
	"math/rand/v2"
	"time"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/sessim"
)

// mailKinds returns the faults of SES and of proxies in front of it.
func mailKinds() []Kind {
	kinds := []Kind{
		{Name: "ses-errors", Weight: 3, Longest: seconds(6), make: failingCalls(0.2, 1,
			"internal-failure", "internal-failure-after", "unavailable-json", "bad-gateway", "gateway-timeout-after", "request-timeout")},
		{Name: "ses-throttle", Weight: 3, Longest: seconds(6), make: failingCalls(0.2, 1, "throttle", "max-send-rate", "plain-429", "limit-exceeded")},
		{Name: "ses-drop", Weight: 3, Longest: seconds(6), make: failingCalls(0.2, 0.8, "cut-before", "cut-after", "reset-after", "cut-in-headers")},
		{Name: "ses-slow", Weight: 2, Longest: seconds(4), Heal: healCall, make: failingCalls(0.02, 0.1, "slow", "slow-body", "hang", "hang-after")},
		{Name: "ses-garble", Weight: 2, Longest: seconds(4), make: failingCalls(0.02, 0.1, "empty-object", "html-200", "truncated", "truncated-cut", "malformed")},
		{Name: "ses-refuse", Weight: 1, Longest: seconds(4), make: failingCalls(0.02, 0.1, "message-rejected", "bad-request")},
		{Name: "ses-locked", Weight: 1, Longest: seconds(4), make: failingCalls(0.5, 1, "expired-token", "access-denied", "signature-mismatch")},
		{Name: "ses-down", Weight: 2, Longest: seconds(6), make: unavailable},
	}
	for i := range kinds {
		kinds[i].Subjects = []string{cluster.SES}
		kinds[i].Shortest = time.Second
		kinds[i].Heal = max(kinds[i].Heal, healSoon+healUnknown)
	}
	return kinds
}

// failingCalls makes a random share of the calls, between least and most, end in one of the
// simulator's faults.
func failingCalls(least, most float64, faults ...string) func(*cluster.Cluster, string, *rand.Rand) Fault {
	return func(c *cluster.Cluster, _ string, random *rand.Rand) Fault {
		rule := sessim.Rule{Fault: faults[random.IntN(len(faults))], Rate: least + (most-least)*random.Float64()}
		return hooks{
			begin: func(context.Context) error { return c.Mail.Simulator.Inject(rule) },
			end: func(context.Context) error {
				c.Mail.Simulator.ClearFaults()
				return nil
			},
		}
	}
}

// unavailable makes SES answer every call with a 503.
func unavailable(c *cluster.Cluster, _ string, _ *rand.Rand) Fault {
	set := func(down bool) func(context.Context) error {
		return func(context.Context) error {
			settings := c.Mail.Simulator.Settings()
			settings.Unavailable = down
			return c.Mail.Simulator.SetSettings(settings)
		}
	}
	return hooks{begin: set(true), end: set(false)}
}
