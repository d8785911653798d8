package tenant

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"

	"email-gateway/api/internal/client"
)

// PageSize is the api's page size.
const PageSize = 100

// page is one page of a list of the api.
type page[T any] struct {
	Rows []T
	Next string
}

// Pages reads pages until there are limit rows or no more. more reports whether there may
// be further rows.
func Pages[T any](ctx context.Context, api *client.Client, path, field string, query url.Values, limit int) (rows []T, more bool, err error) {
	rows = []T{}
	for {
		query.Set("limit", strconv.Itoa(min(limit-len(rows), PageSize)))
		var fields map[string]json.RawMessage
		if err := api.Get(ctx, path, query, &fields); err != nil {
			return nil, false, err
		}
		var p page[T]
		if err := json.Unmarshal(fields[field], &p.Rows); err != nil {
			return nil, false, fmt.Errorf("read %s: %w", field, err)
		}
		if text, ok := fields["nextCursor"]; ok {
			if err := json.Unmarshal(text, &p.Next); err != nil {
				return nil, false, fmt.Errorf("read nextCursor: %w", err)
			}
		}
		rows = append(rows, p.Rows...)
		if p.Next == "" || len(rows) >= limit {
			return rows, p.Next != "", nil
		}
		query.Set("cursor", p.Next)
	}
}
