package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/email"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/tenant"
)

func (g *gateway) importRecipient(tb testing.TB, body string, header ...string) reply {
	tb.Helper()
	c := call{Method: http.MethodPost, Path: "/v1/recipients", Body: body, Header: map[string]string{}}
	for i := 0; i+1 < len(header); i += 2 {
		c.Header[header[i]] = header[i+1]
	}
	return g.do(tb, c)
}

func TestRecipients_One(t *testing.T) {
	t.Parallel()
	hashKey := []byte(strings.Repeat("k", 32))
	g := start(t, func(p *httpapi.Params) { p.HashKey = hashKey })
	r := g.importRecipient(t, `{"externalId": "C-1", "cpfCnpj": "529.982.247-25", "razaoSocial": "Ana & Cia", "nome": "Ana", "email": "Ana@Exämple.com"}`, "X-Request-Id", "req-1")
	id := recipient.ID(g.Company, "C-1", "", "").String()
	if want := fmt.Sprintf(`{"id":%q,"requestId":"req-1"}`, id); r.Status != http.StatusAccepted || r.Body != want || r.Header.Get("Location") != "/v1/recipients/"+id {
		t.Fatalf("%d %v %s, want %s", r.Status, r.Header, r.Body, want)
	}
	if g.Wakes.Load() != 1 {
		t.Errorf("%d wakes", g.Wakes.Load())
	}
	hash := email.HashTaxID("52998224725", hashKey)
	var payload, requestID string
	var encrypted []byte
	err := g.SQL.QueryRowContext(t.Context(), `SELECT payload::text, cpf_cnpj_enc, request_id FROM email_outbox WHERE id = $1`, g.Programs.intakes(t)[0]).Scan(&payload, &encrypted, &requestID)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(payload), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"id": id, "externalId": "C-1", "cpfCnpjHash": hash, "razaoSocial": "Ana & Cia", "nome": "Ana", "email": "Ana@xn--exmple-cua.com"}
	if diff := cmp.Diff(want, got); diff != "" || requestID != "req-1" {
		t.Errorf("%s %s", requestID, diff)
	}
	if bare, err := g.Ring.Open(g.Company, encrypted); bare != "52998224725" || err != nil {
		t.Errorf("%s, %v", bare, err)
	}

	show := func(pending bool) {
		t.Helper()
		r := g.do(t, call{Path: "/v1/recipients/" + id})
		got := r.json(t)
		delete(got, "createdAt")
		delete(got, "updatedAt")
		want := map[string]any{
			"id": id, "externalId": "C-1", "cpfCnpjHash": hash[:8] + "...", "razaoSocial": "Ana & Cia", "nome": "Ana",
			"email": "Ana@xn--exmple-cua.com", "pending": pending,
		}
		if diff := cmp.Diff(want, got); diff != "" || r.Status != http.StatusOK {
			t.Errorf("%d %s", r.Status, diff)
		}
	}
	show(true)
	g.Programs.storeRecipients(t)
	show(false)
	if log := g.Log.String(); strings.Contains(log, "mple") || strings.Contains(log, "52998224725") {
		t.Errorf("the log contains the address or the CPF: %s", log)
	}
}

func TestRecipients_Many(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	people := make([]fields, 1000)
	want := make([]any, len(people))
	for i := range people {
		people[i] = fields{"email": fmt.Sprintf("user%d@example.com", i%999)} // the last one is the first
		want[i] = recipient.ID(g.Company, "", "", fmt.Sprintf("user%d@example.com", i%999)).String()
	}
	people[999]["nome"] = "Ana"
	body, err := json.Marshal(fields{"recipients": people})
	if err != nil {
		t.Fatal(err)
	}
	r := g.importRecipient(t, string(body))
	answer := r.json(t)
	if diff := cmp.Diff(want, answer["ids"]); diff != "" || r.Status != http.StatusAccepted || answer["id"] != nil || r.Header.Get("Location") != "" {
		t.Errorf("%d %v %s", r.Status, r.Header, diff)
	}
	g.Programs.storeRecipients(t)
	if got := g.do(t, call{Path: "/v1/recipients/" + want[0].(string)}).json(t); got["nome"] != "Ana" {
		t.Errorf("%v", got)
	}
	var n int
	if err := g.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM recipients`).Scan(&n); err != nil || n != 999 {
		t.Errorf("%d recipients, %v", n, err)
	}
}

// All faults are reported with their path, and nothing is accepted.
func TestRecipients_Refused(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	long := strings.Repeat("x", 201)
	for name, tt := range map[string]struct {
		body string
		want []string // field and code
	}{
		"nothing":       {`{}`, []string{"email REQUIRED"}},
		"no list":       {`{"recipients": {}}`, []string{"recipients WRONG_TYPE"}},
		"an empty list": {`{"recipients": []}`, []string{"recipients REQUIRED"}},
		"a list too long": {
			`{"recipients": [` + strings.Repeat(`{"email": "a@example.com"},`, 1000) + `{"email": "a@example.com"}]}`,
			[]string{"recipients TOO_MANY"},
		},
		"both":             {`{"email": "a@example.com", "recipients": [{"email": "a@example.com"}]}`, []string{"email UNKNOWN_FIELD"}},
		"an id of its own": {`{"recipientId": "` + uuid.NewString() + `", "email": "a@example.com"}`, []string{"recipientId UNKNOWN_FIELD"}},
		"every field wrong": {
			`{"externalId": "", "cpfCnpj": "1", "cpfCnpjHash": "1", "razaoSocial": "` + long + `", "nome": "a\nb", "email": "a"}`,
			[]string{"cpfCnpj INVALID_CPF_CNPJ", "cpfCnpjHash INVALID_HASH", "email INVALID_EMAIL", "nome BAD_CHARACTER", "razaoSocial TOO_LONG"},
		},
		"one of many": {
			`{"recipients": [{"email": "a@example.com"}, {"email": "b"}, {"nome": 1, "email": "c@example.com", "x": 1}, null,
				{"cpfCnpj": "529.982.247-25", "cpfCnpjHash": "` + strings.Repeat("0", 64) + `", "email": "d@example.com"}]}`,
			[]string{
				"recipients[1].email INVALID_EMAIL", "recipients[2].nome WRONG_TYPE", "recipients[2].x UNKNOWN_FIELD",
				"recipients[3] WRONG_TYPE", "recipients[3].email REQUIRED", "recipients[4].cpfCnpjHash MISMATCH",
			},
		},
	} {
		r := g.importRecipient(t, tt.body)
		var got []string
		for _, e := range r.problem(t).Errors {
			got = append(got, e.Field+" "+e.Code)
		}
		slices.Sort(got)
		if diff := cmp.Diff(tt.want, got); diff != "" || r.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", name, r.Status, diff)
		}
	}
	for body, want := range map[string]int{`[{"email": "a@example.com"}]`: 400, `{`: 400} {
		if r := g.importRecipient(t, body); r.Status != want {
			t.Errorf("%s: %d", body, r.Status)
		}
	}
	if r := g.importRecipient(t, `{"email": "a@example.com"}`, "Content-Type", "text/plain"); r.Status != http.StatusUnsupportedMediaType {
		t.Error(r.Status)
	}
	if n := g.rows(t); n != 0 || g.Wakes.Load() != 0 {
		t.Errorf("%d rows, %d wakes", n, g.Wakes.Load())
	}
}

func TestRecipients_Scope(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	key := g.newKey(t, g.Company, func(k *tenant.APIKey) {
		k.Scopes = slices.DeleteFunc(apikey.Scopes(), func(s string) bool { return s == apikey.RecipientsWrite })
	}).String()
	for _, c := range []call{
		{Method: http.MethodPost, Path: "/v1/recipients", Body: `{"email": "a@example.com"}`, Key: key},
		{Path: "/v1/recipients/" + uuid.NewString(), Key: key},
		{Method: http.MethodDelete, Path: "/v1/recipients/" + uuid.NewString(), Key: key},
	} {
		if r := g.do(t, c); r.Status != http.StatusForbidden || r.problem(t).Code != "SCOPE_MISSING" {
			t.Errorf("%s %s: %d %s", c.Method, c.Path, r.Status, r.Body)
		}
	}
}

func TestRecipients_Idempotency(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for name, body := range map[string]string{
		"one":  `{"externalId": "1", "email": "a@example.com"}`,
		"many": `{"recipients": [{"externalId": "1", "email": "a@example.com"}]}`,
	} {
		before := len(g.Programs.intakes(t))
		first := g.importRecipient(t, body, "Idempotency-Key", name)
		again := g.importRecipient(t, " "+body, "Idempotency-Key", name)
		if again.Status != http.StatusAccepted || again.Body != first.Body || again.Header.Get("Idempotent-Replayed") != "true" ||
			again.Header.Get("Location") != first.Header.Get("Location") || first.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s: %d %v %s, first %s", name, again.Status, again.Header, again.Body, first.Body)
		}
		other := g.importRecipient(t, strings.Replace(body, "a@", "b@", 1), "Idempotency-Key", name)
		if other.Status != http.StatusUnprocessableEntity || other.problem(t).Code != "IDEMPOTENCY_KEY_REUSED" {
			t.Errorf("%s: %d %s", name, other.Status, other.Body)
		}
		if n := len(g.Programs.intakes(t)) - before; n != 1 {
			t.Errorf("%s: %d accepted", name, n)
		}
	}
	// Emails have separate keys.
	r := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(nil), Header: map[string]string{"Idempotency-Key": "one"}})
	if r.Status != http.StatusAccepted || !regexp.MustCompile(`^/v1/email/`).MatchString(r.Header.Get("Location")) {
		t.Errorf("%d %v", r.Status, r.Header)
	}
}

// An email can refer to a recipient from the 202 until the recipient is deleted.
func TestRecipients_AndEmails(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id, _ := g.importRecipient(t, `{"externalId": "1", "email": "ana@example.com"}`).json(t)["id"].(string)
	send := func(to, want string) {
		t.Helper()
		r := g.send(t, emailBody(func(f fields) {
			f["to"], f["recipient"] = to, fields{"recipientId": id, "email": to}
		}))
		if got := r.json(t); r.Status == http.StatusAccepted != (want == "") || want != "" && got["code"] != want {
			t.Errorf("%d %s, want %q", r.Status, r.Body, want)
		}
	}
	send("ana@example.com", "")
	send("bia@example.com", "RECIPIENT_NOT_FOUND")
	g.Programs.storeRecipients(t)
	send("Ana@EXAMPLE.com", "")
	send("bia@example.com", "RECIPIENT_NOT_FOUND")

	// While an update is pending, both addresses are accepted.
	g.importRecipient(t, `{"externalId": "1", "email": "bia@example.com"}`)
	send("ana@example.com", "")
	send("bia@example.com", "")

	path := "/v1/recipients/" + id
	other := g.newKey(t, g.Database.Company(t), nil).String()
	for _, c := range []call{
		{Path: path, Key: other},
		{Method: http.MethodDelete, Path: path, Key: other},
		{Path: "/v1/recipients/x"},
		{Method: http.MethodDelete, Path: "/v1/recipients/" + uuid.NewString()},
	} {
		if r := g.do(t, c); r.Status != http.StatusNotFound || !strings.Contains(r.problem(t).Detail, "recipient") {
			t.Errorf("%s %s: %d %s", c.Method, c.Path, r.Status, r.Body)
		}
	}
	for range 2 {
		if r := g.do(t, call{Method: http.MethodDelete, Path: path}); r.Status != http.StatusNoContent {
			t.Errorf("%d %s", r.Status, r.Body)
		}
		send("ana@example.com", "RECIPIENT_NOT_FOUND")
		send("bia@example.com", "RECIPIENT_NOT_FOUND")
		if r := g.do(t, call{Path: path}); r.Status != http.StatusNotFound {
			t.Errorf("%d %s", r.Status, r.Body)
		}
		g.Programs.storeRecipients(t)
	}
	g.importRecipient(t, `{"externalId": "1", "email": "ana@example.com"}`)
	g.Programs.storeRecipients(t)
	send("ana@example.com", "")
}
