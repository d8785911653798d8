package httpapi_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
)

// TestSend_Refuses: an invalid request gets a 4xx that names the field, and leaves nothing behind.
func TestSend_Refuses(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	stranger := g.Company
	foreign := g.recipient(t, g.Database.Company(t), "ana@example.com")
	elsewhere := g.recipient(t, stranger, "other@example.com")
	deleted := g.recipient(t, stranger, "ana@example.com")
	g.Run(t, `UPDATE recipients SET deleted_at = now() WHERE id = $1`, deleted)
	before := g.rows(t)

	for name, s := range refusals(foreign, elsewhere, deleted) {
		t.Run(name, func(t *testing.T) {
			r := g.send(t, s.body)
			p := r.problem(t)
			if r.Status != s.status || p.Status != s.status || p.Code != s.code {
				t.Fatalf("%d %s, want %d %s: %s", r.Status, p.Code, s.status, s.code, r.Body)
			}
			var got []string
			for _, e := range p.Errors {
				got = append(got, e.Field+" "+e.Code)
			}
			slices.Sort(got)
			slices.Sort(s.faults)
			if !slices.Equal(got, s.faults) {
				t.Errorf("faults %q, want %q", got, s.faults)
			}
			if p.RequestID == "" || p.RequestID != r.Header.Get("X-Request-Id") {
				t.Errorf("requestId %q", p.RequestID)
			}
			if n := g.rows(t); n != before {
				t.Errorf("%d rows were left behind", n-before)
			}
		})
	}
	if g.Wakes.Load() != 0 {
		t.Error("the api has notified a dispatcher")
	}
}

func (g *gateway) recipient(tb testing.TB, company uuid.UUID, address string) string {
	tb.Helper()
	id := uuid.New()
	g.Run(tb, `INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, $3)`, id, company, address)
	return id.String()
}

// refusal is an invalid request with its expected faults.
type refusal struct {
	body   string
	status int
	code   string
	faults []string // "field CODE"
}

func refusals(foreign, elsewhere, deleted string) map[string]refusal {
	all := map[string]refusal{}
	raw := func(name, body string, status int, code string, faults ...string) {
		all[name] = refusal{body, status, code, faults}
	}
	wrong := func(name string, change func(fields), faults ...string) {
		all[name] = refusal{emailBody(change), 422, "VALIDATION_FAILED", faults}
	}
	without := func(name string) func(fields) { return func(f fields) { delete(f, name) } }
	many := func(n int, value string) []string { return slices.Repeat([]string{value}, n) }

	// Bodies that cannot be read.
	raw("empty body", "", 400, "MALFORMED_JSON")
	raw("broken JSON", `{"to":`, 400, "MALFORMED_JSON")
	raw("not JSON", `to=ana@example.com`, 400, "MALFORMED_JSON")
	raw("single quotes", `{'to':'ana@example.com'}`, 400, "MALFORMED_JSON")
	raw("trailing comma", `{"to":"ana@example.com",}`, 400, "MALFORMED_JSON")
	raw("two values", emailBody(nil)+emailBody(nil), 400, "MALFORMED_JSON")
	raw("trailing garbage", emailBody(nil)+" x", 400, "MALFORMED_JSON")
	raw("an array", "["+emailBody(nil)+"]", 400, "MALFORMED_JSON")
	raw("null", "null", 400, "MALFORMED_JSON")
	raw("a string", `"hello"`, 400, "MALFORMED_JSON")
	raw("invalid UTF-8", strings.Replace(emailBody(nil), "Sua", "S\xffa", 1), 400, "MALFORMED_JSON")
	raw("a raw control character", strings.Replace(emailBody(nil), "Sua", "S\x01a", 1), 400, "MALFORMED_JSON")
	raw("UTF-16", "\xff\xfe{\x00}\x00", 400, "MALFORMED_JSON")
	raw("very deep", `{"to":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)+"}", 400, "MALFORMED_JSON")
	raw("3 MiB", emailBody(with("html", strings.Repeat("a", 3<<20))), 413, "BODY_TOO_LARGE")

	// Fields that are missing, unknown, duplicated or of the wrong type.
	raw("no fields", "{}", 422, "VALIDATION_FAILED", "to REQUIRED", "subject REQUIRED", "html REQUIRED", "recipient REQUIRED")
	for _, field := range []string{"to", "subject", "html", "recipient"} {
		wrong("no "+field, without(field), field+" REQUIRED")
		wrong("null "+field, with(field, nil), field+" WRONG_TYPE")
	}
	for field, value := range map[string]any{
		"to": 1, "subject": true, "html": fields{}, "text": 1, "replyTo": 1, "from": []string{}, "cc": "ana@example.com", "bcc": fields{},
		"headers": []string{}, "tags": "a", "recipient": "ana@example.com", "priority": "5", "sendAt": 5, "delivery": false, "aggregate": "42",
	} {
		wrong(field+" of the wrong type", with(field, value), field+" WRONG_TYPE")
	}
	for _, field := range []string{"recipientId", "externalId", "cpfCnpj", "cpfCnpjHash", "razaoSocial", "nome", "email"} {
		wrong(field+" of the wrong type", person(field, 1), "recipient."+field+" WRONG_TYPE")
	}
	wrong("a number among cc", with("cc", []any{"a@example.com", 2}), "cc[1] WRONG_TYPE")
	wrong("a number among tags", with("tags", []any{1}), "tags[0] WRONG_TYPE")
	wrong("a number among headers", with("headers", fields{"X-A": 1}), "headers.X-A WRONG_TYPE")
	wrong("an unknown field", with("tracking", []any{}), "tracking UNKNOWN_FIELD")
	wrong("half an aggregate", with("aggregate", fields{"type": "invoice"}), "aggregate.id REQUIRED", "aggregate.eventType REQUIRED")
	wrong("an aggregate of more", with("aggregate", fields{"type": "invoice", "id": "1", "eventType": "DUE", "at": "now"}), "aggregate.at UNKNOWN_FIELD")
	wrong("names of an aggregate that are none", with("aggregate", fields{"type": "a/b", "id": "..", "eventType": "ana@example.com"}),
		"aggregate.type INVALID_NAME", "aggregate.id INVALID_NAME", "aggregate.eventType INVALID_NAME")
	wrong("long names of an aggregate", with("aggregate", fields{
		"type": strings.Repeat("a", 65), "id": strings.Repeat("a", 201), "eventType": strings.Repeat("a", 65),
	}), "aggregate.type TOO_LONG", "aggregate.id TOO_LONG", "aggregate.eventType TOO_LONG")
	wrong("a field in upper case", with("CC", []string{}), "CC UNKNOWN_FIELD")
	wrong("an unknown field of the recipient", person("phone", "1"), "recipient.phone UNKNOWN_FIELD")
	raw("a doubled field",
		`{"to":"ana@example.com","to":"eva@example.com","subject":"s","html":"<p>x</p>","recipient":{"externalId":"1","email":"ana@example.com"}}`,
		422, "VALIDATION_FAILED", "to DUPLICATE_FIELD")
	wrong("everything at once", func(f fields) {
		f["to"], f["subject"], f["cc"], f["priority"], f["x"] = "nobody", 5, []string{"a@example.com", "b"}, 11, 1
	}, "to INVALID_EMAIL", "subject WRONG_TYPE", "cc[1] INVALID_EMAIL", "priority OUT_OF_RANGE", "x UNKNOWN_FIELD")

	// Lengths and numbers.
	wrong("empty subject", with("subject", ""), "subject REQUIRED")
	wrong("subject of 151", with("subject", strings.Repeat("é", 151)), "subject TOO_LONG")
	six := []string{"a@example.com", "b@example.com", "c@example.com", "d@example.com", "e@example.com", "f@example.com"}
	wrong("six cc", with("cc", six), "cc TOO_MANY")
	wrong("six bcc", with("bcc", six), "bcc TOO_MANY")
	wrong("six tags", with("tags", many(6, "a")), "tags TOO_MANY")
	wrong("a tag of 65", with("tags", []string{strings.Repeat("a", 65)}), "tags[0] TOO_LONG")
	wrong("a bad tag behind a blank one", with("tags", []string{"", "a\nb"}), "tags[1] BAD_CHARACTER")
	wrong("html of 513 KiB", with("html", "<p>"+strings.Repeat("a", 513<<10)), "html TOO_LONG")
	wrong("html of 512 KiB and one byte, in é", with("html", "a"+strings.Repeat("é", 256<<10)), "html TOO_LONG")
	wrong("text of 513 KiB", with("text", strings.Repeat("a", 513<<10)), "text TOO_LONG")
	wrong("priority 0", with("priority", 0), "priority OUT_OF_RANGE")
	wrong("priority 11", with("priority", 11), "priority OUT_OF_RANGE")
	wrong("priority 5.5", with("priority", 5.5), "priority WRONG_TYPE")
	wrong("a huge priority", with("priority", 1e300), "priority WRONG_TYPE")
	for _, field := range []string{"externalId", "razaoSocial", "nome"} {
		wrong(field+" of 201", person(field, strings.Repeat("é", 201)), "recipient."+field+" TOO_LONG")
	}
	for _, blank := range blanks() {
		for _, field := range []string{"to", "subject", "html"} {
			wrong(fmt.Sprintf("%s of %q", field, blank), with(field, blank), field+" REQUIRED")
		}
		for _, field := range []string{"externalId", "recipientId", "cpfCnpj", "cpfCnpjHash"} {
			wrong(fmt.Sprintf("%s of %q alone", field, blank), with("recipient", fields{"email": "ana@example.com", field: blank}), "recipient REQUIRED")
		}
	}
	wrong("an unknown delivery", with("delivery", "exactly_once"), "delivery NOT_ALLOWED")

	// Addresses.
	for name, address := range map[string]string{
		"without @": "ana", "without domain": "ana@", "without local part": "@example.com", "without dot": "ana@localhost",
		"with a space": "ana maria@example.com", "with a name": "Ana <ana@example.com>", "two": "ana@example.com,eva@example.com",
		"with two dots": "ana..maria@example.com", "quoted": `"ana maria"@example.com`, "of an IP": "ana@[127.0.0.1]",
		"with CRLF": "ana@example.com\r\nBcc: eva@example.com", "with a line end in front": "\nana@example.com",
		"local part beyond ASCII": "josé@example.com", "local part of 65": strings.Repeat("a", 65) + "@example.com",
		"of 255": "ana@" + strings.Repeat(strings.Repeat("a", 61)+".", 4) + "com", "with an underscore": "ana@exa_mple.com",
		"with a bad punycode": "ana@xn--a.com", "with a bad IDN": "ana@exa\u200dmple.com", "with U+2028": "ana@example.com\u2028",
	} {
		all["to "+name] = refusal{emailBody(func(f fields) {
			f["to"] = address
			person("email", address)(f)
		}), 422, "VALIDATION_FAILED", []string{"to INVALID_EMAIL", "recipient.email INVALID_EMAIL"}}
	}
	wrong("bad cc", with("cc", []string{"a@example.com", "b@example.com", "c"}), "cc[2] INVALID_EMAIL")
	wrong("bad bcc", with("bcc", []string{"b"}), "bcc[0] INVALID_EMAIL")
	wrong("bad replyTo", with("replyTo", "Ana <ana@example.com>"), "replyTo INVALID_EMAIL")
	wrong("bad cc behind blank ones", with("cc", []string{"", " ", "c"}), "cc[2] INVALID_EMAIL")

	// From.
	for name, from := range map[string]string{
		"without address": "Acme", "of two": "a@acme.example, b@acme.example", "a group": "Acme: billing@acme.example;",
		"with CRLF": "Acme\r\nBcc: eva@example.com <billing@acme.example>", "with an encoded line end": "=?utf-8?q?Acme=0D=0ABcc:?= <billing@acme.example>",
		"with a long name": strings.Repeat("é", 201) + " <billing@acme.example>", "with a bad address": "Acme <billing@localhost>",
	} {
		wrong("from "+name, with("from", from), "from INVALID_EMAIL")
	}
	raw("from a stranger", emailBody(with("from", "Acme <billing@example.com>")), 422, "SENDER_NOT_ALLOWED", "from SENDER_NOT_ALLOWED")
	raw("from a subdomain", emailBody(with("from", "billing@mail.acme.example")), 422, "SENDER_NOT_ALLOWED", "from SENDER_NOT_ALLOWED")

	// Control characters.
	for name, c := range map[string]string{
		"CRLF": "\r\n", "LF": "\n", "CR": "\r", "TAB": "\t", "ESC": "\x1b", "DEL": "\x7f", "U+0085": "\u0085", "U+0087": "\u0087", "U+2028": "\u2028", "U+2029": "\u2029",
	} {
		wrong("subject with "+name, with("subject", "a"+c+"Bcc: eva@example.com"), "subject BAD_CHARACTER")
		wrong("header with "+name, with("headers", fields{"X-A": "a" + c + "b"}), "headers.X-A INVALID_HEADER_VALUE")
	}
	wrong("nome with CRLF", person("nome", "Ana\r\n"), "recipient.nome BAD_CHARACTER")
	wrong("razaoSocial with LF", person("razaoSocial", "Ana\n"), "recipient.razaoSocial BAD_CHARACTER")
	wrong("externalId with LF", person("externalId", "1\n"), "recipient.externalId BAD_CHARACTER")
	wrong("tag with LF", with("tags", []string{"a\nb"}), "tags[0] BAD_CHARACTER")
	wrong("tag with a zero width space", with("tags", []string{"a\u200bb"}), "tags[0] BAD_CHARACTER")
	for _, field := range []string{"to", "subject", "html", "text", "from", "replyTo", "sendAt", "delivery"} {
		wrong("NUL in "+field, with(field, "a\x00b"), field+" BAD_CHARACTER")
	}
	wrong("NUL in a header", with("headers", fields{"X-A": "\x00"}), "headers.X-A BAD_CHARACTER")
	wrong("NUL in nome", person("nome", "\x00"), "recipient.nome BAD_CHARACTER")
	raw("half a surrogate pair", strings.Replace(emailBody(nil), "Sua", `\ud83d`, 1), 422, "VALIDATION_FAILED", "subject BAD_CHARACTER")

	// Headers.
	for _, name := range []string{
		"From", "to", "CC", "Bcc", "Subject", "reply-to", "Date", "Message-ID", "MIME-Version", "Content-Type", "content-transfer-encoding",
		"Return-Path", "Sender", "Received", "DKIM-Signature", "X-SES-CONFIGURATION-SET", "x-ses-anything", "List-Unsubscribe", "List-Unsubscribe-Post",
		"Resent-From", "resent-to", "RESENT-Message-ID", "ARC-Seal", "arc-message-signature", "ARC-Authentication-Results", "Authentication-Results",
		"Received-SPF", "delivered-to",
	} {
		wrong("header "+name, with("headers", fields{name: "x"}), "headers."+name+" RESERVED_HEADER")
	}
	for _, name := range []string{"", "X Foo", "X:Foo", "X-Foo\r\nBcc", "X-Fóo", strings.Repeat("X", 127)} {
		wrong(fmt.Sprintf("header %.10q", name), with("headers", fields{name: "x"}), "headers."+name+" INVALID_HEADER_NAME")
	}
	wrong("two headers that differ in case", with("headers", fields{"X-Foo": "a", "x-foo": "b"}), "headers.x-foo DUPLICATE_FIELD")
	wrong("from with a long name once encoded", with("from", strings.Repeat("名", 200)+" <billing@acme.example>"), "from TOO_LONG")
	wrong("a header of 997", with("headers", fields{"X-A": strings.Repeat("a", 994)}), "headers.X-A INVALID_HEADER_VALUE")
	wrong("a header value of 996", with("headers", fields{"X": strings.Repeat("a", 996)}), "headers.X INVALID_HEADER_VALUE")
	wrong("a header of 124 + 900", with("headers", fields{strings.Repeat("X", 124): strings.Repeat("a", 900)}), "headers."+strings.Repeat("X", 124)+" INVALID_HEADER_VALUE")
	wrong("a header of 126 + 871", with("headers", fields{strings.Repeat("X", 126): strings.Repeat("a", 871)}), "headers."+strings.Repeat("X", 126)+" INVALID_HEADER_VALUE")
	wrong("a header beyond ASCII", with("headers", fields{"X-A": "é"}), "headers.X-A INVALID_HEADER_VALUE")
	wrong("eleven headers", func(f fields) {
		headers := fields{}
		for i := range 11 {
			headers[fmt.Sprintf("X-%d", i)] = "x"
		}
		f["headers"] = headers
	}, "headers TOO_MANY")

	// The recipient.
	wrong("no identifier", func(f fields) { f["recipient"] = fields{"email": "ana@example.com"} }, "recipient REQUIRED")
	wrong("an empty recipient", with("recipient", fields{}), "recipient REQUIRED")
	wrong("another email", person("email", "eva@example.com"), "recipient.email MISMATCH")
	for name, number := range map[string]string{
		"CPF with a wrong digit": "529.982.247-26", "CPF of ones": "111.111.111-11", "CPF without its zero": "5299822472",
		"CNPJ with a wrong digit": "11.222.333/0001-82", "CNPJ with a wrong letter": "12.ABC.345/01DE-36", "CNPJ of zeros": "00000000000000",
		"neither": "12345", "words": "hello",
	} {
		wrong("cpfCnpj: "+name, person("cpfCnpj", number), "recipient.cpfCnpj INVALID_CPF_CNPJ")
	}
	wrong("a short hash", person("cpfCnpjHash", "abc"), "recipient.cpfCnpjHash INVALID_HASH")
	wrong("a hash in upper case", person("cpfCnpjHash", strings.Repeat("A", 64)), "recipient.cpfCnpjHash INVALID_HASH")
	wrong("a hash of another number", func(f fields) {
		person("cpfCnpj", "529.982.247-25")(f)
		sum := sha256.Sum256([]byte("11222333000181"))
		person("cpfCnpjHash", hex.EncodeToString(sum[:]))(f)
	}, "recipient.cpfCnpjHash MISMATCH")
	wrong("a recipientId that is none", person("recipientId", "42"), "recipient.recipientId INVALID_ID")
	wrong("a recipientId in braces", person("recipientId", "{"+uuid.NewString()+"}"), "recipient.recipientId INVALID_ID")
	for name, id := range map[string]string{
		"unknown": uuid.NewString(), "foreign": foreign, "deleted": deleted, "at another address": elsewhere,
	} {
		raw("recipientId "+name, emailBody(person("recipientId", id)), 422, "RECIPIENT_NOT_FOUND", "recipient.recipientId RECIPIENT_NOT_FOUND")
	}

	// Times.
	for _, at := range []string{"tomorrow", "2026-03-01", "2026-03-01T09:00:00", "2026-03-01 09:00:00Z", "2026-02-30T09:00:00Z", "2016-12-31T23:59:60Z", "1772355600"} {
		wrong(fmt.Sprintf("sendAt %q", at), with("sendAt", at), "sendAt INVALID_TIMESTAMP")
	}
	wrong("sendAt in two years", with("sendAt", "2199-01-01T00:00:00Z"), "sendAt OUT_OF_RANGE")

	// Script in many disguises.
	for _, html := range scripted() {
		raw("html "+html, emailBody(with("html", html)), 422, "INVALID_TEMPLATE", "html INVALID_TEMPLATE")
	}
	for _, html := range []string{"<p> </p>", "<!-- -->", "<p>&nbsp;\u200b</p><br>", "<html><head><title>Oferta</title><style>p{}</style></head><body></body></html>"} {
		wrong("html that shows nothing: "+html, with("html", html), "html SHOWS_NOTHING")
	}
	return all
}

// blanks are invisible texts.
func blanks() []string {
	return []string{"", "   ", "\t", "\r\n", "\u00a0", "\u200b", "\ufeff", "\u2060 \u00ad", "\u3000"}
}

func scripted() []string {
	return []string{
		`<script>alert(1)</script>`, `<SCRIPT SRC=//evil.example/x.js></SCRIPT>`, `<script/x>1</script>`,
		`<img src=x onerror=alert(1)>`, `<img src=x OnErRoR = "alert(1)">`, `<body onload=alert(1)>`, `<svg/onload=alert(1)>`,
		`<a href="javascript:alert(1)">x</a>`, `<a href="JaVaScRiPt:alert(1)">x</a>`, `<a href=" java&#10;script:alert(1)">x</a>`,
		`<a href="&#106;avascript:alert(1)">x</a>`, `<a href="vbscript:x">x</a>`, `<iframe src="javascript:alert(1)"></iframe>`,
		`<a href="data:text/html;base64,PHNjcmlwdD4=">x</a>`, `<form action="javascript:alert(1)"><button>x</button></form>`,
		`<svg><script>alert(1)</script></svg>`, `<math><a xlink:href="javascript:alert(1)">x</a></math>`,
		`<td onclick=alert(1)>x</td>`, `<p style="width: expression(alert(1))">x</p>`, `<noscript><p title="</noscript><img src=x onerror=alert(1)>">`,
	}
}

// TestSend_AcceptsWhatLooksLikeScript: mere words are not script.
func TestSend_AcceptsWhatLooksLikeScript(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for _, html := range []string{
		`<p>Use &lt;script&gt; wisely</p>`, `<p>javascript: a language</p>`, `<a href="https://example.com/javascript:x">x</a>`,
		`<a href="https://example.com/?onclick=1">x</a>`, `<p title="onload=alert(1)">x</p>`, `<p>5 < 6 onclick=</p>`,
		`<!-- <script>alert(1)</script> --><p>x</p>`, `<description>scripture</description>`, `<p data-onclick="x">x</p>`,
		`<img src="data:image/png;base64,iVBORw0KGgo=" alt="x">`, `<style>p { color: red }</style><p>x</p>`, `<p class="script">manuscript</p>`,
	} {
		if r := g.send(t, emailBody(with("html", html))); r.Status != http.StatusAccepted {
			t.Errorf("%s: %d %s", html, r.Status, r.Body)
		}
	}
}

// TestSend_Envelope: requests rejected because of their headers.
func TestSend_Envelope(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	revoked := g.newKey(t, g.Company, nil)
	if err := g.Store.RevokeAPIKey(t.Context(), storetest.Operator(), revoked.ID); err != nil {
		t.Fatal(err)
	}
	reader := g.newKey(t, g.Company, func(k *tenant.APIKey) { k.Scopes = []string{"emails:read"} })
	shut := g.Database.Company(t)
	ofSuspended := g.newKey(t, shut, nil)
	if err := g.Store.SuspendCompany(t.Context(), storetest.Operator(), shut); err != nil {
		t.Fatal(err)
	}
	forged := g.Key
	forged.Secret = strings.Repeat("a", len(forged.Secret))
	unknown := forged
	unknown.ID = strings.Repeat("b", len(unknown.ID))
	before := g.rows(t)

	post := func(change func(*call)) call {
		c := call{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(nil)}
		change(&c)
		return c
	}
	header := func(name, value string) call {
		return post(func(c *call) { c.Header = map[string]string{name: value} })
	}
	key := func(value string) call { return post(func(c *call) { c.Key = value }) }
	for name, s := range map[string]struct {
		call   call
		status int
		code   string
	}{
		"no key":                          {post(func(c *call) { c.NoKey = true }), 401, "UNAUTHORIZED"},
		"a word for a key":                {key("hello"), 401, "UNAUTHORIZED"},
		"an unknown key":                  {key(unknown.String()), 401, "UNAUTHORIZED"},
		"a wrong secret":                  {key(forged.String()), 401, "UNAUTHORIZED"},
		"a revoked key":                   {key(revoked.String()), 401, "UNAUTHORIZED"},
		"a key with more":                 {key(g.Key.String() + "x"), 401, "UNAUTHORIZED"},
		"another environment":             {key(strings.Replace(g.Key.String(), "_test_", "_live_", 1)), 401, "UNAUTHORIZED"},
		"basic authentication":            {header("Authorization", "Basic "+g.Key.String()), 401, "UNAUTHORIZED"},
		"a reader's key":                  {key(reader.String()), 403, "SCOPE_MISSING"},
		"a suspended company":             {key(ofSuspended.String()), 403, "COMPANY_SUSPENDED"},
		"no content type":                 {header("Content-Type", ""), 415, "UNSUPPORTED_MEDIA_TYPE"},
		"a form":                          {header("Content-Type", "application/x-www-form-urlencoded"), 415, "UNSUPPORTED_MEDIA_TYPE"},
		"text":                            {header("Content-Type", "text/json"), 415, "UNSUPPORTED_MEDIA_TYPE"},
		"another charset":                 {header("Content-Type", "application/json; charset=latin1"), 415, "UNSUPPORTED_MEDIA_TYPE"},
		"compressed":                      {header("Content-Encoding", "gzip"), 415, "UNSUPPORTED_MEDIA_TYPE"},
		"an empty idempotency key":        {post(func(c *call) { c.Header = map[string]string{"Idempotency-Key": " "} }), 400, "INVALID_IDEMPOTENCY_KEY"},
		"a long idempotency key":          {header("Idempotency-Key", strings.Repeat("k", 256)), 400, "INVALID_IDEMPOTENCY_KEY"},
		"an idempotency key beyond ASCII": {header("Idempotency-Key", "chavé"), 400, "INVALID_IDEMPOTENCY_KEY"},
		"3 MiB in chunks": {post(func(c *call) {
			c.Reader = struct{ *strings.Reader }{strings.NewReader(emailBody(with("text", strings.Repeat("a", 3<<20))))}
		}), 413, "BODY_TOO_LARGE"},
	} {
		t.Run(name, func(t *testing.T) {
			r := g.do(t, s.call)
			if p := r.problem(t); r.Status != s.status || p.Code != s.code {
				t.Errorf("%d %s, want %d %s", r.Status, r.Body, s.status, s.code)
			}
		})
	}
	if n := g.rows(t); n != before {
		t.Errorf("%d rows were left behind", n-before)
	}
	for _, secret := range []string{g.Key.Secret, revoked.Secret, "example.com"} {
		if strings.Contains(g.Log.String(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}
