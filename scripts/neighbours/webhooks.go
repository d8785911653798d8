package neighbours

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// mostWebhooks is how many webhook endpoints a company may have.
const mostWebhooks = 20

// webhooks are misuses of the delivery of events to webhook endpoints: a company has as many as it may, and
// sends emails that have events.
func webhooks() []resource {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	fail := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	accept := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	return []resource{
		webhookResource("webhooks-hang", "20 webhook endpoints that do not respond, and 2,000 emails", hang),
		webhookResource("webhooks-fail", "20 webhook endpoints that respond with 500, 2,000 emails, and replays and tests without a pause", fail),
		webhookResource("webhooks-many", "20 webhook endpoints that accept all events of 2,000 emails", accept),
	}
}

// webhookResource is the misuse with endpoints that respond like that.
func webhookResource(name, what string, respond http.HandlerFunc) resource {
	var e *endpoint
	var all []string // ids of the endpoints
	return resource{
		name: name, what: what, deliveries: true, short: name == "webhooks-hang",
		prepare: func(ctx context.Context, s *scenario) error {
			var err error
			e, err = newEndpoint(func(w http.ResponseWriter, r *http.Request) {
				s.count("requests to the endpoints", 1)
				respond(w, r)
			})
			if err != nil {
				return err
			}
			for n := range mostWebhooks {
				if err := s.client.createWebhook(ctx, fmt.Sprintf("%s/%d", e.URL, n)); err != nil {
					return errors.Join(err, e.Close())
				}
			}
			all, err = s.webhookIDs(ctx)
			return err
		},
		misuse: func(ctx context.Context, s *scenario) error {
			var misusing sync.WaitGroup
			if name == "webhooks-fail" {
				misusing.Go(func() { s.generateLoad(ctx, 8, 0, func(n int) request { return replayOrTest(all, n) }) })
			}
			s.generateLoad(ctx, 16, s.scale(2000, 400), func(n int) request { return s.mail(n, nil) })
			misusing.Wait()
			<-ctx.Done()
			return nil
		},
		restore: func(_ context.Context, _ *scenario) error { return e.Close() },
	}
}

// replayOrTest is a request for deliveries of one of the endpoints.
func replayOrTest(endpoints []string, n int) request {
	path := "/v1/webhooks/" + endpoints[n/2%len(endpoints)]
	if n%2 == 0 {
		return request{method: http.MethodPost, path: path + "/replays", body: encode(map[string]any{"failed": true})}
	}
	return request{method: http.MethodPost, path: path + "/test"}
}

// webhookIDs returns the ids of the company's endpoints.
func (s *scenario) webhookIDs(ctx context.Context) (all []string, err error) {
	rows, err := s.cluster.Database.QueryContext(ctx, `SELECT id FROM webhook_endpoints WHERE company_id = $1 ORDER BY slot`, s.company)
	if err != nil {
		return nil, fmt.Errorf("list webhook endpoints: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("list webhook endpoints: %w", err)
		}
		all = append(all, id)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list webhook endpoints: %w", err)
	}
	return all, nil
}
