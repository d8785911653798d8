package httpapi_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/email"
	"email-gateway/shared/store/storetest"
)

// stored is an email's row.
type stored struct {
	Job                              email.SendJob
	Company, RequestID, Sender, HTML string
	Text                             *string
	Status, Delivery                 string
	Priority                         int
	Enc                              []byte
	Created, Next, Expires           time.Time
}

func (g *gateway) stored(tb testing.TB, id string) stored {
	tb.Helper()
	var s stored
	var payload []byte
	err := g.SQL.QueryRowContext(tb.Context(), `SELECT payload, company_id, request_id, sender, html, text_body, status, delivery, priority,
		cpf_cnpj_enc, created_at, next_at, expires_at FROM email_outbox WHERE id = $1`, id).
		Scan(&payload, &s.Company, &s.RequestID, &s.Sender, &s.HTML, &s.Text, &s.Status, &s.Delivery, &s.Priority, &s.Enc, &s.Created, &s.Next, &s.Expires)
	if err != nil {
		tb.Fatalf("find %s: %v", id, err)
	}
	if err := json.Unmarshal(payload, &s.Job); err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestSend_StoresEverything(t *testing.T) {
	t.Parallel()
	hashKey := []byte(strings.Repeat("k", 32))
	g := start(t, func(p *httpapi.Params) { p.HashKey = hashKey })
	if err := g.Store.AddSenderDomain(t.Context(), storetest.Operator(), g.Company, "xn--exmple-cua.com"); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	r := g.do(t, call{
		Method: http.MethodPost, Path: "/v1/email/send", Header: map[string]string{"X-Request-Id": "req-abc123"},
		Body: emailBody(func(f fields) {
			maps.Copy(f, fields{
				"to": "Ana@Exämple.com", "cc": []string{"a@example.com"}, "bcc": []string{"b@bücher.example"},
				"subject": "Fatura <1> \"ação\" 😀", "html": "<p>Olá</p>", "text": "Olá\r\n\ttchau", "replyTo": "suporte@acme.example",
				"from": "Ação Ltda <cobranca@EXÄMPLE.com>", "headers": fields{"X-Invoice": "1"}, "tags": []string{"fatura", "março"},
				"priority": 2, "sendAt": at.Format(time.RFC3339), "delivery": "at_most_once",
				"recipient": fields{
					"externalId": "C-1", "cpfCnpj": "529.982.247-25", "razaoSocial": "Ana & Cia", "nome": "Ana", "email": "Ana@exÄmple.com",
				},
			})
		}),
	})
	answer := r.json(t)
	id, _ := answer["outboxId"].(string)
	if r.Status != http.StatusAccepted || answer["jobId"] != id || answer["status"] != "PENDING" || answer["requestId"] != "req-abc123" ||
		r.Header.Get("Location") != "/v1/email/"+id || r.Header.Get("X-Request-Id") != "req-abc123" || len(answer) != 5 {
		t.Fatalf("%d %v %s", r.Status, r.Header, r.Body)
	}
	s := g.stored(t, id)
	want := email.SendJob{
		OutboxID: id, CompanyID: g.Company.String(), RequestID: "req-abc123", HTMLRef: id,
		To: "Ana@xn--exmple-cua.com", CC: []string{"a@example.com"}, BCC: []string{"b@xn--bcher-kva.example"},
		Subject: "Fatura <1> \"ação\" 😀", ReplyTo: "suporte@acme.example", Headers: map[string]string{"X-Invoice": "1"},
		Tags: []string{"fatura", "março"},
		Recipient: email.JobRecipient{
			ExternalID: "C-1", CPFCNPJHash: email.HashTaxID("52998224725", hashKey), RazaoSocial: "Ana & Cia", Nome: "Ana",
			Email: "Ana@xn--exmple-cua.com",
		},
	}
	if diff := cmp.Diff(want, s.Job); diff != "" {
		t.Errorf("payload (-want +got):\n%s", diff)
	}
	if s.Sender != "=?utf-8?b?QcOnw6NvIEx0ZGE=?= <cobranca@xn--exmple-cua.com>" || s.HTML != "<p>Olá</p>" || *s.Text != "Olá\r\n\ttchau" ||
		s.Status != "PENDING" || s.Delivery != "at_most_once" || s.Priority != 2 || s.RequestID != "req-abc123" {
		t.Errorf("%+v", s)
	}
	if !s.Next.Equal(at) || !s.Expires.Equal(at.Add(24*time.Hour)) {
		t.Errorf("next %v, expires %v, want %v and a day later", s.Next, s.Expires, at)
	}
	if created, err := time.Parse(time.RFC3339, answer["createdAt"].(string)); err != nil || !created.Equal(s.Created) {
		t.Errorf("createdAt %v, stored %v", answer["createdAt"], s.Created)
	}
	if bare, err := g.Ring.Open(g.Company, s.Enc); bare != "52998224725" || err != nil {
		t.Errorf("cpfCnpj %q, %v", bare, err)
	}
	if g.Wakes.Load() != 0 {
		t.Error("the api has notified a dispatcher for an email that is due in two days")
	}
	for _, secret := range []string{"52998224725", "529.982.247-25", "Ana", "exmple", "cobranca"} {
		if strings.Contains(g.Log.String(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

func TestSend_Defaults(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.accept(t, emailBody(nil))
	s := g.stored(t, id)
	if s.Sender != "Acme <billing@acme.example>" || s.Text != nil || s.Delivery != "at_least_once" || s.Priority != 5 || s.Enc != nil ||
		!strings.HasPrefix(s.RequestID, "req-") {
		t.Errorf("%+v", s)
	}
	if s.Expires.Sub(s.Next) != 24*time.Hour || s.Next.After(time.Now()) {
		t.Errorf("next %v, expires %v", s.Next, s.Expires)
	}
	if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 7 {
		t.Errorf("id %s is no UUIDv7", id)
	}
	if g.Wakes.Load() != 1 {
		t.Errorf("%d dispatcher notifications, want 1", g.Wakes.Load())
	}
}

// An email that is due within the minute needs a wake-up as one that is due now.
func TestSend_DueSoon(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	for i, c := range []struct {
		due   string
		wakes int64
	}{{in(20 * time.Second), 1}, {in(time.Hour), 1}, {in(-time.Minute), 2}} {
		g.accept(t, emailBody(func(f fields) { f["sendAt"] = c.due }))
		if n := g.Wakes.Load(); n != c.wakes {
			t.Errorf("%d: %d dispatcher notifications, want %d", i, n, c.wakes)
		}
	}
	r := g.batch(t, "", "", batchBody(fmt.Sprintf(`{"to": "ana@example.com", "subject": "s", "html": "<p>a</p>", "recipient": {"externalId": "c-1"}, "sendAt": %q}`, in(20*time.Second))))
	if n := g.Wakes.Load(); n != 3 {
		t.Errorf("after a batch: %d dispatcher notifications, want 3; %d %s", n, r.Status, r.Body)
	}
}

// Monitors and load balancers use HEAD.
func TestHead(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for path, want := range map[string]int{
		"/livez": http.StatusOK, "/readyz": http.StatusOK, "/health": http.StatusOK, "/openapi.yaml": http.StatusOK, "/u/nothing": http.StatusNotFound,
		"/v1/emails": http.StatusMethodNotAllowed,
	} {
		if r := g.do(t, call{Method: http.MethodHead, Path: path}); r.Status != want || r.Body != "" {
			t.Errorf("%s: %d %q, want %d without a body", path, r.Status, r.Body, want)
		}
	}
}

// TestSend_Accepts: values at the limits.
func TestSend_Accepts(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	sum := sha256.Sum256([]byte("52998224725"))
	hash := hex.EncodeToString(sum[:])
	known := g.recipient(t, g.Company, "ana@EXAMPLE.com")
	headers := fields{}
	for name := range 10 {
		headers["X-"+string(rune('a'+name))] = strings.Repeat("v", 900)
	}
	for name, change := range map[string]func(fields){
		"subject of 150 characters":  with("subject", strings.Repeat("é", 150)),
		"an emoji joined in subject": with("subject", "👩‍💻"),
		"html of 512 KiB":            with("html", "<p>"+strings.Repeat("é", 256<<10-2)+"a"),
		"both bodies at their limit": func(f fields) { f["html"], f["text"] = strings.Repeat("a", 512<<10), strings.Repeat("é", 256<<10) },
		"five of each":               func(f fields) { f["cc"], f["bcc"], f["tags"] = five("a@example.com"), five("b@example.com"), five("t") },
		"empty lists": func(f fields) {
			f["cc"], f["bcc"], f["tags"], f["headers"] = []string{}, []string{}, []string{}, fields{}
		},
		"ten headers":              with("headers", headers),
		"a header name of 126":     with("headers", fields{strings.Repeat("X", 126): "v"}),
		"odd header names":         with("headers", fields{"X.Y-!#$%&'*+": "v", "X[0]": "v", "7": "v", "Contentment": "v"}),
		"the default sender":       with("from", "billing@ACME.example"),
		"its name changed":         with("from", `"Acme, Inc." <billing@acme.example>`),
		"sendAt in the past":       with("sendAt", "2001-01-01T00:00:00Z"),
		"sendAt with an offset":    with("sendAt", time.Now().In(time.FixedZone("", -3*3600)).Add(time.Hour).Format(time.RFC3339Nano)),
		"sendAt in a year":         with("sendAt", time.Now().AddDate(1, 0, -1).Format(time.RFC3339)),
		"priority 1":               with("priority", 1),
		"priority 10":              with("priority", 10),
		"a CPF hash":               person("cpfCnpjHash", hash),
		"a CPF and its hash":       func(f fields) { person("cpfCnpj", "52998224725")(f); person("cpfCnpjHash", hash)(f) },
		"only a CNPJ with letters": with("recipient", fields{"cpfCnpj": "12.ABC.345/01DE-35", "email": "ana@example.com"}),
		"a known recipient":        with("recipient", fields{"recipientId": known, "email": "ana@example.com"}),
		"its id in upper case":     with("recipient", fields{"recipientId": strings.ToUpper(known), "email": "ana@Example.Com"}),
		"empty names":              func(f fields) { person("nome", "")(f); person("razaoSocial", "")(f); f["text"] = "" },
		"long names": func(f fields) {
			person("nome", strings.Repeat("é", 200))(f)
			person("externalId", strings.Repeat("é", 200))(f)
		},
		"a plus address":     func(f fields) { f["to"] = "a+b_c{d}@x-y.example"; person("email", "a+b_c{d}@X-Y.example")(f) },
		"a local part of 64": func(f fields) { a := strings.Repeat("a", 64) + "@example.com"; f["to"] = a; person("email", a)(f) },
	} {
		t.Run(name, func(t *testing.T) {
			id := g.accept(t, emailBody(change))
			s := g.stored(t, id)
			s.Job.Attempt, s.Job.EnqueuedAt = 1, time.Now()
			if err := s.Job.Validate(email.MaxAttempts); err != nil {
				t.Errorf("the stored job is invalid for the worker: %v", err)
			}
			if s.Next.After(time.Now()) && !strings.HasPrefix(name, "sendAt") {
				t.Errorf("due at %v", s.Next)
			}
		})
	}
}

func five(value string) []string { return slices.Repeat([]string{value}, 5) }

func TestSend_KeysInEitherHeader(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for name, header := range map[string]map[string]string{
		"bearer":        {"Authorization": "bearer " + g.Key.String()},
		"X-API-Key":     {"Authorization": "", "X-API-Key": g.Key.String()},
		"behind basic":  {"Authorization": "Basic eDp5", "X-API-Key": g.Key.String()},
		"for a proxy":   {"Authorization": "Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln", "X-API-Key": g.Key.String()},
		"of a proxy":    {"Authorization": "Bearer " + g.Key.String(), "X-API-Key": "a key of a proxy"},
		"two spaces":    {"Authorization": "Bearer  " + g.Key.String()},
		"upper charset": {"Content-Type": "application/json; charset=UTF-8"},
		"no hyphen":     {"Content-Type": "application/json; charset=utf8"},
		"identity":      {"Content-Encoding": "identity"},
	} {
		r := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(nil), Header: header})
		if r.Status != http.StatusAccepted {
			t.Errorf("%s: %d %s", name, r.Status, r.Body)
		}
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for given, taken := range map[string]bool{
		"req-1": true, strings.Repeat("r", 128): true, "!~": true, "": false, "a b": false, "ana@example.com": false, strings.Repeat("r", 129): false, "é": false,
	} {
		r := g.do(t, call{Path: "/livez", NoKey: true, Header: map[string]string{"X-Request-Id": given}})
		if got := r.Header.Get("X-Request-Id"); (got == given) != taken || got == "" {
			t.Errorf("X-Request-Id %q was returned as %q", given, got)
		}
	}
}

// Blank fields of the content count as missing, an address gets one copy, and headers may contain what SES accepts.
func TestSend_BlankAndTwice(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	long := strings.Repeat("X", 126)
	for _, blank := range blanks() {
		s := g.stored(t, g.accept(t, "\ufeff"+emailBody(func(f fields) {
			maps.Copy(f, fields{
				"cc": []string{"ANA@example.com", blank, "eva@example.com"}, "bcc": []string{"Eva@EXAMPLE.com", "rui@example.com", "rui@example.com"},
				"html": "\ufeff<p>Olá</p>", "text": blank, "replyTo": blank, "from": blank,
				"tags": []string{blank, "a"}, "headers": fields{"X-A": blank, long: strings.Repeat("a", 870), "Y": strings.Repeat("b", 995)},
				"recipient": fields{
					"recipientId": blank, "externalId": "C-1", "cpfCnpj": "529\u2011982–247\u00a0\u221225", "cpfCnpjHash": blank, "razaoSocial": blank, "nome": blank,
					"email": "ana@example.com",
				},
			})
		})))
		want := email.SendJob{
			To: "ana@example.com", CC: []string{"eva@example.com"}, BCC: []string{"rui@example.com"}, Subject: "Sua fatura", Tags: []string{"a"},
			Headers:   map[string]string{long: strings.Repeat("a", 870), "Y": strings.Repeat("b", 995)},
			Recipient: email.JobRecipient{ExternalID: "C-1", CPFCNPJHash: email.HashTaxID("52998224725", nil), Email: "ana@example.com"},
		}
		got := s.Job
		got.OutboxID, got.CompanyID, got.RequestID, got.HTMLRef = "", "", "", ""
		if diff := cmp.Diff(want, got); diff != "" || s.HTML != "<p>Olá</p>" || s.Text != nil || s.Delivery != "at_least_once" || s.Next.After(time.Now().Add(time.Minute)) {
			t.Errorf("%q: %+v\n%s", blank, s, diff)
		}
	}
	// A repeated address counts once; thousands of different addresses are not processed one by one.
	repeated, different := slices.Repeat([]string{"eva@example.com"}, 2000), make([]string, 2000)
	for i := range different {
		different[i] = fmt.Sprintf("eva%d@example.com", i)
	}
	for want, copies := range map[int][]string{http.StatusAccepted: repeated, http.StatusUnprocessableEntity: different} {
		if r := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(with("cc", copies))}); r.Status != want {
			t.Errorf("%d copies: %d %s", len(copies), r.Status, r.Body)
		}
	}
	// Two people without an id are distinct.
	people := `{"recipients":[{"externalId":"   ","email":"a@example.com"},{"externalId":"\u200b","email":"b@example.com"}]}`
	r := g.do(t, call{Method: http.MethodPost, Path: "/v1/recipients", Body: people})
	if ids, _ := r.json(t)["ids"].([]any); r.Status != http.StatusAccepted || len(ids) != 2 || ids[0] == ids[1] {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}
