package neighbours

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// anonymousRoutes are resources that clients without a key can use.
func anonymousRoutes() []resource {
	return []resource{
		{
			name: "wrong-keys", what: "64 connections send keys with a wrong secret, and keys that do not exist",
			misuse: func(ctx context.Context, s *scenario) error {
				parts := strings.Split(s.client.key, "_")
				s.generateLoad(ctx, 64, 0, func(n int) request {
					wrong := append([]string(nil), parts...)
					last := wrong[len(wrong)-1]
					wrong[len(wrong)-1] = last[1:] + last[:1]
					if n%2 == 0 {
						id := wrong[2]
						wrong[2] = id[:len(id)-8] + fmt.Sprintf("%08d", n%100_000_000)
					}
					return request{method: http.MethodGet, path: "/v1/emails", key: strings.Join(wrong, "_")}
				})
				return nil
			},
		},
		{
			name: "public-routes", what: "64 connections ask for /health, /readyz, unsubscribe links and SNS's route without a pause",
			misuse: func(ctx context.Context, s *scenario) error {
				event := request{
					method: http.MethodPost, path: "/v1/ses/events", contentType: "text/plain; charset=UTF-8",
					body: []byte(`{"Type":"Notification","Message":"` + strings.Repeat("a", 100<<10) + `"}`),
				}
				all := []request{
					{method: http.MethodGet, path: "/health"},
					{method: http.MethodGet, path: "/readyz"},
					{method: http.MethodGet, path: "/u/" + strings.Repeat("A", 120)},
					event,
				}
				s.generateLoad(ctx, 64, 0, func(n int) request { return all[n%len(all)] })
				return nil
			},
		},
	}
}
