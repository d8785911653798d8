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
	// Review is the enforcement status of an account that is not healthy.
	Review string `json:"review"`
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

// sesAccess compares the SES settings of the workers, and reports those whose account is in the sandbox or under review.
func (x *examination) sesAccess(alive []process) {
	workers := map[string][]process{}
	var sandboxed, reviewed []process
	for _, p := range alive {
		if p.SESAccess == nil {
			continue
		}
		through := p.SESAccess.String()
		workers[through] = append(workers[through], p)
		if p.SESAccess.Sandbox {
			sandboxed = append(sandboxed, p)
		}
		if p.SESAccess.Review != "" {
			reviewed = append(reviewed, p)
		}
	}
	if len(reviewed) > 0 {
		happens, advice := "SES reviews the account of", "If the cause remains, AWS pauses the account, for all companies."
		if reviewed[0].SESAccess.Review == "SHUTDOWN" {
			happens, advice = "After a review, AWS has paused the account of", "No company can send until AWS resumes the account."
		}
		x.add("ses", Warning, "See ProviderAccountUnderReview in OPERATIONS.md: AWS's notice to the account says why. "+advice,
			"%s %s (region %s): its enforcement status is %s.", happens, names(reviewed), reviewed[0].SESAccess.Region, reviewed[0].SESAccess.Review)
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
