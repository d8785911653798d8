package neighbours

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"email-gateway/scripts/sessim"
)

// queues are the resources between outbox and SES: windows, the worker's concurrency, the send
// rate.
func queues() []resource {
	return []resource{
		{
			name: "priority-1", what: "10,000 emails of priority 1", short: true,
			misuse: flood(10_000, func(n int) map[string]any { return map[string]any{"priority": 1} }),
		},
		{
			name: "every-priority", what: "10,000 emails of the priorities 1, 5 and 9",
			misuse: flood(10_000, func(n int) map[string]any { return map[string]any{"priority": 1 + n%3*4} }),
		},
		{
			name: "many-recipients", what: "5,000 emails to 11 recipients each",
			misuse: flood(5000, func(n int) map[string]any {
				return map[string]any{"cc": copies("cc", n), "bcc": copies("bcc", n)}
			}),
		},
		{
			name: "throttled-storm", what: "10,000 emails while SES throttles above half of the rate that it states",
			// A throttled email is sent again after the first wait of the backoff.
			windows: 2, backoff: 1250 * time.Millisecond,
			misuse: func(ctx context.Context, s *scenario) error {
				err := s.account(func(st *sessim.Settings) { st.MaxSendRate, st.EnforceRate = sendRate/2, true })
				if err != nil {
					return err
				}
				return flood(10_000, func(int) map[string]any { return nil })(ctx, s)
			},
			restore: func(ctx context.Context, s *scenario) error {
				if err := s.account(func(st *sessim.Settings) { st.MaxSendRate, st.EnforceRate = sendRate, false }); err != nil {
					return err
				}
				// The worker reads the account every minute, and needs a minute to return to its
				// rate.
				return s.await(ctx, 3*time.Minute, `
					SELECT max((details ->> 'sendRate')::float) >= $1 FROM process_status WHERE service = 'worker' AND now() - updated_at < interval '15 s'`, sendRate)
			},
		},
		{
			name: "failing-emails", what: "10,000 emails that SES refuses, and their dead letters sent again",
			misuse: func(ctx context.Context, s *scenario) error {
				s.generateLoad(ctx, 32, s.scale(10_000, 500), func(n int) request {
					if n%500 == 499 {
						return request{method: http.MethodPost, path: "/v1/dead-letters/retry", body: encode(map[string]any{"target": "email:send", "rate": 1000, "note": "de novo"})}
					}
					to := fmt.Sprintf("pessoa%d+sim-message-rejected@%s", n, s.domain)
					return s.mail(n, map[string]any{"to": to, "recipient": map[string]any{"externalId": fmt.Sprintf("pessoa-%d", n), "email": to}})
				})
				<-ctx.Done()
				return nil
			},
		},
	}
}

// flood submits n emails as fast as they are accepted, with the fields that change returns.
func flood(n int, change func(n int) map[string]any) func(ctx context.Context, s *scenario) error {
	return func(ctx context.Context, s *scenario) error {
		s.generateLoad(ctx, 64, s.scale(n, n/5), func(n int) request { return s.mail(n, change(n)) })
		<-ctx.Done()
		return nil
	}
}

func copies(name string, n int) []string {
	var all []string
	for i := range 5 {
		all = append(all, fmt.Sprintf("%s%d-%d@copias.example", name, n, i))
	}
	return all
}

// account changes the settings of SES's account.
func (s *scenario) account(change func(*sessim.Settings)) error {
	settings := s.cluster.Mail.Simulator.Settings()
	change(&settings)
	return s.cluster.Mail.Simulator.SetSettings(settings)
}
