package sessim_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/waittest"
)

// request is a SendEmail body that tests change before they send it.
type request map[string]any

func body(to string) request {
	return request{
		"FromEmailAddress": "no-reply@example.com",
		"Destination":      map[string]any{"ToAddresses": []string{to}},
		"Content": map[string]any{"Simple": map[string]any{
			"Subject": map[string]any{"Data": "Olá", "Charset": "UTF-8"},
			"Body":    map[string]any{"Html": map[string]any{"Data": "<p>Olá</p>", "Charset": "UTF-8"}},
		}},
	}
}

// with returns the request with the value at a path such as "Content.Simple.Subject"; nil removes
// the member.
func (r request) with(path string, value any) request {
	at := map[string]any(r)
	names := strings.Split(path, ".")
	last := names[len(names)-1]
	for _, name := range names[:len(names)-1] {
		at = at[name].(map[string]any)
	}
	if at[last] = value; value == nil {
		delete(at, last)
	}
	return r
}

func (r request) tagged(outboxID string) request {
	return r.with("EmailTags", []map[string]string{{"Name": "outbox_id", "Value": outboxID}})
}

// do calls the handler without a network. It does not support faults that break the connection.
func do(t testing.TB, sim http.Handler, method, target, text string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(text))
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=id")
	w := httptest.NewRecorder()
	sim.ServeHTTP(w, r)
	return w
}

func send(t testing.TB, sim http.Handler, r request) *httptest.ResponseRecorder {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, sim, http.MethodPost, "/v2/email/outbound-emails", string(text))
}

// message returns the error message of a response.
func message(t testing.TB, w *httptest.ResponseRecorder) string {
	t.Helper()
	var answer struct{ Message string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("answer %q: %v", w.Body, err)
	}
	return answer.Message
}

func addresses(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = "ana@example.com"
	}
	return list
}

func headers(pairs ...string) []map[string]string {
	var list []map[string]string
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, map[string]string{"Name": pairs[i], "Value": pairs[i+1]})
	}
	return list
}

func TestValidation(t *testing.T) {
	t.Parallel()
	const (
		to     = "Destination.ToAddresses"
		simple = "Content.Simple"
	)
	var many []string
	for i := range 16 {
		many = append(many, "X-"+string(rune('A'+i)), "v")
	}
	for name, c := range map[string]struct {
		path  string
		value any
		want  string // part of the message; empty: the mail is accepted
	}{
		"as it is":                 {"TenantName", "acme", ""},
		"no from":                  {"FromEmailAddress", nil, "'From'"},
		"no destination":           {"Destination", nil, "no recipients"},
		"no recipients":            {to, []string{}, "no recipients"},
		"50 recipients":            {to, addresses(50), ""},
		"51 recipients":            {to, addresses(51), "exceeds 50"},
		"display name":             {to, []string{`"Ana, filha" <ana@example.com>`}, ""},
		"encoded display name":     {to, []string{"=?utf-8?q?Jos=C3=A9?= <jose@example.com>"}, ""},
		"raw display name":         {to, []string{"José <jose@example.com>"}, "RFC 2047"},
		"raw sender name":          {"FromEmailAddress", "José <jose@example.com>", "RFC 2047"},
		"no at sign":               {to, []string{"not an email"}, "Illegal address"},
		"no domain":                {to, []string{"ana"}, "Missing final '@domain'"},
		"empty domain":             {to, []string{"ana@"}, "Missing final '@domain'"},
		"empty local part":         {to, []string{"@example.com"}, "Illegal address"},
		"long local part":          {to, []string{strings.Repeat("a", 65) + "@example.com"}, "Illegal address"},
		"plus and dots":            {to, []string{"a.n+x_y@sub.example.com"}, ""},
		"comma in local part":      {to, []string{"a,b@example.com"}, "Illegal address"},
		"non-ASCII local part":     {to, []string{"josé@example.com"}, "non-ASCII"},
		"non-ASCII in brackets":    {to, []string{"<josé@example.com>"}, "non-ASCII"},
		"non-ASCII domain":         {to, []string{"ana@exámple.com"}, "Domain contains illegal character"},
		"domain starts with dot":   {to, []string{"ana@.example.com"}, "Domain starts with dot"},
		"control in address":       {to, []string{"ana@example.com\r\nBcc: x@example.com"}, "control"},
		"bad reply-to":             {"ReplyToAddresses", []string{"nobody"}, "Missing final"},
		"raw content":              {"Content", map[string]any{"Raw": map[string]any{"Data": "aGk="}}, "Content.Simple only"},
		"template content":         {"Content", map[string]any{"Template": map[string]any{}}, "Content.Simple only"},
		"no content":               {"Content", nil, "Content.Simple is required"},
		"no subject":               {simple + ".Subject", nil, "Subject is required"},
		"line break in subject":    {simple + ".Subject.Data", "a\r\nb", "control characters"},
		"no body":                  {simple + ".Body", nil, "Body requires"},
		"body without data":        {simple + ".Body.Html.Data", nil, "Data is required"},
		"unknown charset":          {simple + ".Subject.Charset", "EBCDIC", "Invalid charset"},
		"attachment":               {simple + ".Attachments", []any{map[string]any{}}, "FileName is required"},
		"15 headers":               {simple + ".Headers", headers(many[:30]...), ""},
		"16 headers":               {simple + ".Headers", headers(many...), "exceeds 15"},
		"header name with space":   {simple + ".Headers", headers("X A", "v"), "Invalid header name"},
		"header name with colon":   {simple + ".Headers", headers("X:A", "v"), "Invalid header name"},
		"header value non-ASCII":   {simple + ".Headers", headers("X-A", "é"), "Invalid value of header 'X-A'"},
		"header value with break":  {simple + ".Headers", headers("X-A", "a\nb"), "Invalid value"},
		"header value at limit":    {simple + ".Headers", headers("X", strings.Repeat("v", 995)), ""},
		"header value over limit":  {simple + ".Headers", headers("X", strings.Repeat("v", 996)), "Invalid value"},
		"header line over limit":   {simple + ".Headers", headers("X-A", strings.Repeat("v", 995)), "longer than 996"},
		"header set elsewhere":     {simple + ".Headers", headers("subject", "v"), "Duplicate header"},
		"once-only header twice":   {simple + ".Headers", headers("List-Id", "a", "list-id", "b"), "Duplicate header"},
		"free header twice":        {simple + ".Headers", headers("X-A", "a", "X-A", "b"), ""},
		"tag with space":           {"EmailTags", headers("attempt id", "v"), "Invalid tag 'attempt id'"},
		"tag non-ASCII":            {"EmailTags", headers("a", "ção"), "Invalid tag 'a'"},
		"tag empty":                {"EmailTags", headers("a", ""), "Invalid tag"},
		"tag at limit":             {"EmailTags", headers("a", strings.Repeat("v", 256)), ""},
		"tag over limit":           {"EmailTags", headers("a", strings.Repeat("v", 257)), "Invalid tag"},
		"tag that SES reads":       {"EmailTags", headers("ses:feedback-id-a", "x"), ""},
		"configuration set":        {"ConfigurationSetName", "main_set-1", ""},
		"configuration set spaced": {"ConfigurationSetName", "main set", "Invalid configuration set name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := sessim.New(sessim.Config{})
			w := send(t, sim, body("ana@example.com").with(c.path, c.value))
			if c.want == "" {
				if w.Code != http.StatusOK || len(sim.Inbox()) != 1 {
					t.Errorf("status %d: %s", w.Code, w.Body)
				}
				return
			}
			if w.Code != http.StatusBadRequest || errorType(w.Header()) != "BadRequestException" || !strings.Contains(message(t, w), c.want) {
				t.Errorf("status %d: %s, want a BadRequestException with %q", w.Code, w.Body, c.want)
			}
			entry := sim.Ledger()[0]
			if entry.Accepted || entry.Error == "" || entry.Fault != "" || len(sim.Inbox()) != 0 {
				t.Errorf("entry = %+v", entry)
			}
		})
	}
}

func TestMalformedAndOversizedBodies(t *testing.T) {
	t.Parallel()
	sim := sessim.New(sessim.Config{})
	for text, want := range map[string]string{
		"":                                 "Could not parse request body",
		`{"FromEmailAddress":`:             "Could not parse request body",
		`{"Destination":"ana@a.com"}`:      "Could not parse request body",
		strings.Repeat(" ", 40<<20) + "{}": "Message length is more than 41943040 bytes long: '41943042'.",
	} {
		w := do(t, sim, http.MethodPost, "/v2/email/outbound-emails", text)
		if w.Code != http.StatusBadRequest || !strings.Contains(message(t, w), want) {
			t.Errorf("%.30q: %d %s", text, w.Code, w.Body)
		}
	}
	if sum := sim.Summary(); sum.Requests != 4 || sum.Accepted != 0 || sum.ByStatus[400] != 4 {
		t.Errorf("summary = %+v", sum)
	}
}

func TestCharset(t *testing.T) {
	t.Parallel()
	for charset, want := range map[string]string{
		"UTF-8":      "Olá €",
		"utf-8":      "Olá €",
		"ISO-8859-1": "Olá ?",
		"US-ASCII":   "Ol? ?",
		"":           "Ol? ?",
	} {
		sim := sessim.New(sessim.Config{})
		text := map[string]any{"Data": "Olá €", "Charset": charset}
		r := body("ana@example.com").with("Content.Simple.Subject", text).
			with("Content.Simple.Body", map[string]any{"Text": text, "Html": text})
		if w := send(t, sim, r); w.Code != http.StatusOK {
			t.Fatalf("charset %q: %s", charset, w.Body)
		}
		m := sim.Inbox()[0]
		if m.Subject != want || m.Text != want || m.HTML != want {
			t.Errorf("charset %q: subject %q, text %q, html %q, want %q", charset, m.Subject, m.Text, m.HTML, want)
		}
	}
}

func TestUnsignedRequests(t *testing.T) {
	t.Parallel()
	sim := sessim.New(sessim.Config{})
	for _, authorization := range []string{"", "Bearer x", "AWS3-HTTPS x"} {
		for method, path := range map[string]string{"POST": "/v2/email/outbound-emails", "GET": "/v2/email/account"} {
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader("{}"))
			r.Header.Set("Authorization", authorization)
			w := httptest.NewRecorder()
			sim.ServeHTTP(w, r)
			if w.Code != http.StatusForbidden || errorType(w.Header()) != "MissingAuthenticationToken" {
				t.Errorf("%s with %q: %d %v", path, authorization, w.Code, w.Header())
			}
		}
	}
}

func TestUnknownOperation(t *testing.T) {
	t.Parallel()
	w := do(t, sessim.New(sessim.Config{}), http.MethodGet, "/v2/email/identities", "")
	if w.Code != http.StatusNotFound || errorType(w.Header()) != "UnknownOperationException" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// A request with an incomplete body is not in the ledger, but it is counted.
func TestBrokenRequest(t *testing.T) {
	t.Parallel()
	sim := sessim.New(sessim.Config{})
	server := httptest.NewServer(sim)
	defer server.Close()
	broken := io.MultiReader(bytes.NewReader([]byte(`{"From`)), failingReader{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v2/email/outbound-emails", broken)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := server.Client().Do(r); err == nil {
		response.Body.Close()
		t.Fatal("the client got a response")
	}
	waittest.Until(t, "the answer is counted as broken", func() bool { return sim.Summary().Broken == 1 })
	if n := len(sim.Ledger()); n != 0 {
		t.Errorf("the ledger has %d entries", n)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

// errorType returns the header in SES's spelling, which differs from Go's.
func errorType(h http.Header) string {
	for name, values := range h {
		if name == "x-amzn-ErrorType" {
			return values[0]
		}
	}
	return ""
}
