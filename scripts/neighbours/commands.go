package neighbours

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
)

// commands are requests that are expensive for the database, or wait there for each other.
func commands() []resource {
	return []resource{
		{
			name: "searches", what: "64 connections search and list a million emails without a pause",
			prepare: func(ctx context.Context, s *scenario) error { return s.seedLogs(ctx, s.scale(1_000_000, 20_000)) },
			misuse: func(ctx context.Context, s *scenario) error {
				s.generateLoad(ctx, 64, 0, s.searchRequest)
				return nil
			},
		},
		{
			name: "suppressions", what: "64 connections suppress, list and free addresses, the same ones at the same time",
			misuse: func(ctx context.Context, s *scenario) error {
				s.generateLoad(ctx, 64, 0, func(n int) request {
					address := fmt.Sprintf("saiu%d@%s", n/3%50, s.domain)
					switch n % 3 {
					case 0:
						return request{method: http.MethodPost, path: "/v1/suppressions", body: encode(map[string]any{"address": address, "reason": "MANUAL"})}
					case 1:
						return request{method: http.MethodDelete, path: "/v1/suppressions?reason=MANUAL&address=" + url.QueryEscape(address)}
					}
					return request{method: http.MethodGet, path: "/v1/suppressions?limit=100"}
				})
				return nil
			},
		},
	}
}

// searchRequest returns a search with few matches among many rows, or a page from the middle.
func (s *scenario) searchRequest(n int) request {
	queries := []string{
		"limit=100", "tag=nenhuma&limit=100", "status=FAILED&limit=100", "status=PENDING&limit=100", "status=SENT&tag=oferta&limit=100",
		"recipient=ninguem@" + s.domain, "externalId=ninguem", "requestId=nenhum",
		"recipient=modelo@" + s.domain + "&status=FAILED&limit=100", "externalId=modelo&tag=nenhuma&limit=100",
		"createdAfter=2020-01-01T00:00:00Z&createdBefore=2040-01-01T00:00:00Z&tag=nenhuma&limit=100",
	}
	return request{method: http.MethodGet, path: "/v1/emails?" + queries[n%len(queries)]}
}
