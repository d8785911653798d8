package httpapi_test

import (
	"encoding/base64"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// badTexts are texts that Postgres cannot store, as they are written in an address: U+0000, a byte that no UTF-8 has, a cut
// character, a surrogate and an overlong NUL.
func badTexts() []string {
	return []string{"%00", "a%00b", "%ff", "%c3%28", "%ed%a0%80", "%c0%80"}
}

// badCursors are cursors with such texts, and with numbers and times that Postgres cannot store.
func badCursors() []string {
	var all []string
	for _, raw := range []string{
		"\x00", "\xff", "{}", "null", "[]", `""`, `{"a":1}`,
		`{"a":"\u0000","r":"MANUAL"}`, `{"a":"a@example.com","r":"\u0000"}`, `{"a":"x\u0000y","r":"MANUAL","t":"2026-01-01T00:00:00Z"}`,
		"{\"a\":\"\xff\",\"r\":\"MANUAL\"}", `{"a":"\ud83d","r":"MANUAL"}`, "{\"a\":\"\x00\",\"r\":\"MANUAL\"}", `{"\u0000":1}`,
		`{"Name":"\u0000"}`, `{"Name":"a","Locale":"\u0000"}`, `{"name":"a\u0000","locale":""}`, "{\"Name\":\"\xc3\x28\"}", `{"Name":"\udc00"}`,
		`{"l":2147483648,"e":"00000000-0000-0000-0000-000000000000"}`, `{"l":-9223372036854775808}`, `{"l":1e99}`, `{"l":1,"e":"\u0000"}`,
		`{"t":"0000-01-01T00:00:00Z","i":"00000000-0000-0000-0000-000000000000"}`, `{"t":"9999-12-31T23:59:59.999999999Z"}`, `{"t":"\u0000"}`,
		"e\x00", "e9223372036854775807", "e1.1.2147483647", "e1.65535.1", "e9223372036854775807.65535.2147483647",
	} {
		all = append(all, base64.RawURLEncoding.EncodeToString([]byte(raw)))
	}
	return append(all, "AA", "%00", "%ff", "AAAAAAAAAAAAAAAAAAAAAA")
}

// refusesText sends a request with a text that Postgres cannot store. It must be an error of the client.
func refusesText(t *testing.T, g *gateway, c call) reply {
	t.Helper()
	r := g.do(t, c)
	if r.Status >= 500 || r.Status < 300 {
		t.Errorf("%s %s: %d %s", c.Method, c.Path, r.Status, r.Body)
	}
	return r
}

// No operation passes U+0000 or invalid UTF-8 from a path to the database: the object does not exist.
func TestBadText_InPaths(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	h := createOneOfEach(t, g)
	known := approaches()
	n := 0
	for _, o := range operations(t) {
		try := known[o.ID]
		valid := map[string]string{"{type}": "interview", "{version}": "1", "{name}": heldTemplate, "{delivery}": h.delivery, "{replay}": h.webhookReplay, "{token}": "t"}
		if try.id != nil {
			valid["{id}"] = try.id(h)
		}
		parameters := regexp.MustCompile(`\{[a-z]+\}`).FindAllString(o.Path, -1)
		for _, bad := range parameters {
			for _, text := range badTexts() {
				path := o.Path
				for _, parameter := range parameters {
					if parameter == bad {
						path = strings.Replace(path, parameter, text, 1)
					} else {
						path = strings.Replace(path, parameter, valid[parameter], 1)
					}
				}
				if r := refusesText(t, g, call{Method: o.Method, Path: path, Body: try.body}); r.Status != http.StatusNotFound {
					t.Errorf("%s %s: %d %s", o.Method, path, r.Status, r.Body)
				}
				n++
			}
		}
	}
	if n < 300 {
		t.Errorf("only %d requests", n)
	}
}

// No operation passes U+0000, invalid UTF-8, or a number out of range from a query parameter or a cursor to the database.
func TestBadText_InQueries(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	h := createOneOfEach(t, g)
	known := approaches()
	n := 0
	described(func(method, path string, o *openapi3.Operation) {
		try := known[o.OperationID]
		path = strings.NewReplacer("{type}", "interview", "{version}", "1", "{name}", heldTemplate, "{delivery}", h.delivery, "{replay}", h.webhookReplay).Replace(path)
		if try.id != nil {
			path = strings.Replace(path, "{id}", try.id(h), 1)
		}
		for _, p := range o.Parameters {
			if p.Value.In != openapi3.ParameterInQuery {
				continue
			}
			for _, text := range badTexts() {
				for _, query := range []string{p.Value.Name + "=" + text, text + "=" + text} {
					if r := refusesText(t, g, call{Method: method, Path: path + "?" + query, Body: try.body}); r.Status != http.StatusUnprocessableEntity {
						t.Errorf("%s %s?%s: %d %s", method, path, query, r.Status, r.Body)
					}
					n++
				}
			}
			if name := p.Value.Name; name != "cursor" && name != "after" {
				continue
			}
			for _, cursor := range badCursors() {
				variants := []string{""}
				if o.OperationID == "listSuppressions" { // its cursor has a time if the list is by creation
					variants = append(variants, "&createdAfter=2026-01-01T00:00:00Z")
				}
				for _, more := range variants {
					c := call{Method: method, Path: path + "?" + p.Value.Name + "=" + cursor + more, Body: try.body}
					if r := g.do(t, c); r.Status >= 500 {
						t.Errorf("%s: %d %s", c.Path, r.Status, r.Body)
					}
					n++
				}
			}
		}
	})
	if n < 500 {
		t.Errorf("only %d requests", n)
	}
}

// A cursor with a text that Postgres cannot store is not the cursor of a page.
func TestBadText_InCursors(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for _, tt := range []struct{ path, cursor string }{
		{"/v1/suppressions", `{"a":"\u0000","r":"MANUAL"}`},
		{"/v1/suppressions", `{"a":"a@example.com","r":"\u0000"}`},
		{"/v1/suppressions", `{"a":"a\ud83d","r":"MANUAL"}`},
		{"/v1/suppressions", "{\"a\":\"\xff\",\"r\":\"MANUAL\"}"},
		{"/v1/templates", `{"Name":"\u0000"}`},
		{"/v1/templates", `{"Name":"a","Locale":"\u0000"}`},
		{"/v1/templates", "{\"Name\":\"\xff\"}"},
		{"/v1/dead-letters", `{"t":"\u0000"}`},
	} {
		r := g.do(t, call{Path: tt.path + "?cursor=" + base64.RawURLEncoding.EncodeToString([]byte(tt.cursor))})
		if r.Status != http.StatusUnprocessableEntity || r.problem(t).Errors[0].Field != "cursor" || r.problem(t).Errors[0].Code != "INVALID_CURSOR" {
			t.Errorf("%s %q: %d %s", tt.path, tt.cursor, r.Status, r.Body)
		}
	}
}

// Headers that are stored accept printable ASCII only.
func TestBadText_InHeaders(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for _, text := range []string{"\xff", "a\xc3\x28", "\xed\xa0\x80", "é", "\u2028", "a\tb"} {
		for _, make := range []func() call{
			func() call { return call{Path: "/v1/email/send", Body: emailBody(nil)} },
			func() call { return call{Path: "/v1/email/batch", Body: batchBody(emailBody(nil))} },
			func() call { return call{Path: "/v1/recipients", Body: `{"externalId":"1","email":"ana@example.com"}`} },
			func() call { return uploadCall(t, mailingForm(), nil) },
		} {
			with := func(header map[string]string) call {
				c := make()
				c.Method = http.MethodPost
				if c.Header == nil {
					c.Header = map[string]string{}
				}
				maps.Copy(c.Header, header)
				return c
			}
			if r := refusesText(t, g, with(map[string]string{"Idempotency-Key": text})); r.problem(t).Code != "INVALID_IDEMPOTENCY_KEY" {
				t.Errorf("%q: %d %s", text, r.Status, r.Body)
			}
			c := with(map[string]string{"X-Request-Id": text, "traceparent": "00-" + text, "tracestate": text})
			if r := g.do(t, c); r.Status != http.StatusAccepted || r.Header.Get("X-Request-Id") == text {
				t.Errorf("%s %q: %d %v %s", c.Path, text, r.Status, r.Header, r.Body)
			}
		}
		if r := g.do(t, call{Path: "/v1/emails", Key: "gw_test_" + text + "_" + text}); r.Status != http.StatusUnauthorized {
			t.Errorf("a key of %q: %d %s", text, r.Status, r.Body)
		}
	}
}
