package response_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/response"
)

func TestNegotiate(t *testing.T) {
	t.Parallel()
	const json, csv = "application/json", "text/csv"
	for _, tt := range []struct {
		want   string
		accept []string
	}{
		{json, nil},
		{json, []string{""}},
		{json, []string{"*/*"}},
		{json, []string{"application/*"}},
		{csv, []string{"text/csv"}},
		{csv, []string{"Text/CSV; charset=utf-8"}},
		{csv, []string{"text/*, application/json"}}, // equal weights
		{json, []string{"application/json, text/csv"}},
		{csv, []string{"application/json;q=0.5, text/csv"}},
		{csv, []string{"application/json;q=0, text/csv"}},
		{csv, []string{"*/*, application/json;q=0"}},
		{csv, []string{"application/json;q=0.000, */*;q=0.1"}},
		{json, []string{"text/csv;q=0, */*;q=0.1"}},
		{json, []string{"text/*;q=0.9, text/csv;q=0.1, */*;q=0.5"}}, // the most exact range counts
		{csv, []string{"application/json;q=0.2", "text/csv;q=0.3"}},
		{json, []string{"text/csv;q=2, text/csv;q=x, text/csv;q=NaN, ;;, application/json;q=0.1"}},
		{"", []string{"application/json;q=0"}},
		{"", []string{"image/png"}},
		{"", []string{"*/*;q=0"}},
	} {
		c := &gin.Context{Request: &http.Request{Header: http.Header{"Accept": tt.accept}}}
		if got := response.Negotiate(c, json, csv); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.accept, got, tt.want)
		}
	}
}
