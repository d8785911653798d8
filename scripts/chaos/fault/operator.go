package fault

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/shared/service"
)

// everything is the subject of a pause of all emails.
const everything = "gate"

// Holds reports whether the fault is an operator's pause of all emails, or of that company's.
func (p Injected) Holds(company string) bool {
	return strings.HasPrefix(p.Kind, "operator-") && (p.Subject == everything || p.Subject == company)
}

// operatorKinds returns the pauses by an operator with gatewayctl.
func operatorKinds() []Kind {
	return []Kind{
		{Name: "operator-lanes", Weight: 2, Shortest: seconds(1), Longest: seconds(6), Heal: healSoon, Subjects: cluster.Companies(), make: hold},
		{Name: "operator-gate", Weight: 1, Shortest: seconds(1), Longest: seconds(4), Heal: healSoon, Subjects: []string{everything}, make: hold},
	}
}

// holdTimeout is the timeout of the operator's command: Postgres may be down at that time.
const holdTimeout = 30 * time.Second

func hold(c *cluster.Cluster, subject string, _ *rand.Rand) Fault {
	company := subject
	if subject == everything {
		company = ""
	}
	return hooks{
		begin: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, holdTimeout)
			defer cancel()
			for {
				err := c.PauseSending(ctx, company)
				if err == nil || service.Pause(ctx, time.Second) != nil {
					return err
				}
			}
		},
		end: func(ctx context.Context) error { return c.ResumeSending(ctx, company) },
	}
}
