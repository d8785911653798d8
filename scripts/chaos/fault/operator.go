package fault

import (
	"context"
	"math/rand/v2"
	"time"

	"email-gateway/scripts/chaos/stage"
	"email-gateway/shared/service"
)

// gate is the subject of what befalls all emails.
const gate = "gate"

// operatorKinds: what an operator holds back with gatewayctl, and lets go on.
func operatorKinds() []Kind {
	return []Kind{
		{Name: "operator-lanes", Weight: 2, Shortest: seconds(1), Longest: seconds(6), Heal: healSoon, Subjects: stage.Companies(), make: hold},
		{Name: "operator-gate", Weight: 1, Shortest: seconds(1), Longest: seconds(4), Heal: healSoon, Subjects: []string{gate}, make: hold},
	}
}

// holdPatience is how long the operator tries: Postgres may be down just then.
const holdPatience = 30 * time.Second

func hold(s *stage.Stage, subject string, _ *rand.Rand) Fault {
	company := subject
	if subject == gate {
		company = ""
	}
	return hooks{
		begin: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, holdPatience)
			defer cancel()
			for {
				err := s.Hold(ctx, company)
				if err == nil || service.Pause(ctx, time.Second) != nil {
					return err
				}
			}
		},
		end: func(ctx context.Context) error { return s.Release(ctx, company) },
	}
}
