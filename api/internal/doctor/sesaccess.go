package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// sesAccess holds a worker's settings that decide which emails SES accepts and where it publishes their events.
type sesAccess struct {
	Region           string `json:"region"`
	Endpoint         string `json:"endpoint"` // "" is that of the region
	ConfigurationSet string `json:"configurationSet"`
	// Sandbox: SES sends only to verified recipients.
	Sandbox bool `json:"sandbox"`
}

func (a sesAccess) String() string {
	text := "region " + a.Region
	if a.Endpoint != "" {
		text += " at " + a.Endpoint
	}
	if a.ConfigurationSet == "" {
		return text + " without a configuration set"
	}
	return text + " with the configuration set " + a.ConfigurationSet
}

// sesAccess compares the SES settings of the workers, and reports those whose account is in the sandbox.
func (x *examination) sesAccess(alive []process) {
	workers := map[string][]process{}
	var sandboxed []process
	for _, p := range alive {
		if p.SESAccess == nil {
			continue
		}
		through := p.SESAccess.String()
		workers[through] = append(workers[through], p)
		if p.SESAccess.Sandbox {
			sandboxed = append(sandboxed, p)
		}
	}
	if len(sandboxed) > 0 {
		x.add("ses", Warning, "Request production access in this region of SES. Until then emails to recipients that are not verified there fail with SES_SANDBOX: `gatewayctl dlq retry --code SES_SANDBOX --yes` sends them again.",
			"SES has the account of %s in its sandbox (region %s): it sends only to verified recipients.", names(sandboxed), sandboxed[0].SESAccess.Region)
	}
	if len(workers) < 2 {
		return
	}
	var all []string
	for _, through := range slices.Sorted(maps.Keys(workers)) {
		all = append(all, fmt.Sprintf("%s (%s)", through, names(workers[through])))
	}
	x.add("ses", Warning, "Unless an update is changing them, set AWS_REGION, SES_ENDPOINT and SES_CONFIGURATION_SET to the same values for all workers: one with wrong values fails valid emails, or loses their events.",
		"The workers send through different settings: %s.", strings.Join(all, "; "))
}
