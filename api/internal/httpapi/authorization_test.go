package httpapi_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/clientip"
)

// operation is one of openapi.yaml.
type operation struct {
	ID, Method, Path string
	Public           bool   // security: []
	Scope            string // as its description names it
}

// operations are all that openapi.yaml describes.
func operations(tb testing.TB) []operation {
	tb.Helper()
	var all []operation
	described(func(method, path string, d *openapi3.Operation) {
		o := operation{ID: d.OperationID, Method: method, Path: path, Public: d.Security != nil && len(*d.Security) == 0}
		if _, rest, found := strings.Cut(d.Description, "Requires the scope `"); found {
			o.Scope, _, _ = strings.Cut(rest, "`")
		}
		all = append(all, o)
	})
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
	if len(all) < 30 {
		tb.Fatalf("only %d operations found", len(all))
	}
	return all
}

// Only these operations answer without a key with anything but 401. A route that needs no key must be
// added here deliberately.
func TestAuthorization_WithoutKey(t *testing.T) {
	t.Parallel()
	public := []string{"askToUnsubscribe", "showDocument", "showHealth", "showLive", "showReady", "takeSESEvent", "unsubscribe"}
	g := start(t, func(p *httpapi.Params) { p.Proxies = clientip.Proxies{netip.MustParsePrefix("127.0.0.0/8")} })
	stranger, err := apikey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for n, o := range operations(t) {
		path := strings.NewReplacer("{id}", uuid.NewString(), "{type}", "interview", "{token}", "t").Replace(o.Path)
		from := map[string]string{"X-Forwarded-For": fmt.Sprintf("198.51.100.%d", n)} // one address may not try so often
		without := g.do(t, call{Method: o.Method, Path: path, NoKey: true, Body: "{}", Header: from})
		unknown := g.do(t, call{Method: o.Method, Path: path, Key: stranger.String(), Body: "{}", Header: from})
		half := g.do(t, call{Method: o.Method, Path: path, Key: "gw_test_" + g.Key.ID + "_" + stranger.Secret, Body: "{}", Header: from})
		if without.Status != http.StatusUnauthorized || unknown.Status != http.StatusUnauthorized || half.Status != http.StatusUnauthorized {
			open = append(open, o.ID)
		} else if without.Header.Get("WWW-Authenticate") == "" || unknown.problem(t).Detail != half.problem(t).Detail {
			t.Errorf("%s: %v %s %s", o.ID, without.Header, unknown.Body, half.Body)
		}
		if slices.Contains(public, o.ID) != o.Public {
			t.Errorf("%s answers without a key unlike openapi.yaml, where public is %v", o.ID, o.Public)
		}
	}
	slices.Sort(open)
	if !slices.Equal(open, public) {
		t.Errorf("operations without a key are %v, want %v", open, public)
	}
}

// Every operation requires exactly the scope that its description names.
func TestAuthorization_Scopes(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	only, without := map[string]string{}, map[string]string{}
	for _, scope := range apikey.Scopes() {
		others := slices.DeleteFunc(apikey.Scopes(), func(s string) bool { return s == scope })
		only[scope] = g.newKey(t, g.Company, scopes(scope)).String()
		without[scope] = g.newKey(t, g.Company, scopes(others...)).String()
	}
	for _, o := range operations(t) {
		if o.Public {
			continue
		}
		if only[o.Scope] == "" {
			t.Errorf("the description of %s names an unknown scope %q", o.ID, o.Scope)
			continue
		}
		path := strings.NewReplacer("{id}", uuid.NewString(), "{type}", "interview").Replace(o.Path)
		r := g.do(t, call{Method: o.Method, Path: path, Key: without[o.Scope], Body: "{}"})
		if r.Status != http.StatusForbidden || r.problem(t).Code != "SCOPE_MISSING" {
			t.Errorf("%s without %s: %d %s", o.ID, o.Scope, r.Status, r.Body)
		}
		r = g.do(t, call{Method: o.Method, Path: path, Key: only[o.Scope], Body: "{}"})
		if r.Status == http.StatusForbidden || r.Status == http.StatusUnauthorized {
			t.Errorf("%s with %s alone: %d %s", o.ID, o.Scope, r.Status, r.Body)
		}
	}
}
