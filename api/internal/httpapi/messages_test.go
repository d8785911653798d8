package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/api/internal/apikey"
)

// messages returns the message of the only fault of a reply, or all messages.
func messages(tb testing.TB, r reply) string {
	tb.Helper()
	var all []string
	for _, e := range r.problem(tb).Errors {
		all = append(all, e.Field+" "+e.Message)
	}
	return strings.Join(all, "; ")
}

// Messages name the fault, the field to use and what to do.
func TestSend_MessagesNameTheRemedy(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for name, tt := range map[string]struct {
		change func(fields)
		want   string
	}{
		"a name in to":             {with("to", "Ana <ana@example.com>"), "to must be a bare address such as ana@example.com, without a name and angle brackets: put the name into recipient.nome"},
		"a name in its email":      {person("email", "Ana <ana@example.com>"), "recipient.email must be a bare address such as ana@example.com, without a name and angle brackets: put the name into recipient.nome"},
		"a name in cc":             {with("cc", []string{"Ana <a@b.example>"}), "cc[0] must be a bare address such as ana@example.com, without a name and angle brackets"},
		"two in to":                {with("to", "a@b.example, c@d.example"), "to must be one address, not several: one recipient per email; cc and bcc take up to 5 more"},
		"two in cc":                {with("cc", []string{"a@b.example,c@d.example"}), "cc[0] must be one address, not several: make each an entry of the array"},
		"a list in to":             {with("to", []string{}), "to must be a string, not an array: one recipient per email; cc and bcc take up to 5 more, POST /mailings a file of recipients"},
		"an object in from":        {with("from", fields{"email": "a@b.example"}), `from must be a string, not an object: name and address in one, such as "Acme <billing@acme.example>"`},
		"no list in cc":            {with("cc", "a@b.example"), "cc must be an array, not a string: put it into brackets, even a single value"},
		"a priority in text":       {with("priority", "5"), "priority must be a number, not a string: write it without quotes"},
		"a number for a CPF":       {person("cpfCnpj", 52998224725), "recipient.cpfCnpj must be a string, not a number: put it into quotes"},
		"null":                     {with("text", nil), "text must be a string, not null: leave the field out"},
		"null in what is required": {with("to", nil), "to must be a string, not null: it needs a value"},
		"null in a list":           {with("tags", []any{"a", nil}), "tags[1] must be a string, not null: leave it out of the array"},
		"another address":          {person("email", "eva@example.com"), "recipient.email must be the same address as `to`, or be left out"},
		"a known field":            {with("tracking", true), "tracking is not supported: tracking of opens and clicks is set by the operator's SES configuration set"},
		"another API's files":      {with("anexos", []any{}), "anexos is not a field; attachments is"},
		"a template":               {with("template", "welcome"), "template must be an object, not a string"},
		"another spelling":         {with("reply_to", "a@b.example"), "reply_to is not a field; replyTo is"},
		"another name":             {with("body", "<p>x</p>"), "body is not a field; html is"},
		"another place":            {with("nome", "Ana"), "nome is not a field here; recipient.nome is"},
		"another call":             {with("dryRun", true), "dryRun is not a field here: it is a part of POST /mailings"},
		"a header":                 {with("headers", fields{"Reply-To": "a@b.example"}), "headers.Reply-To is a reserved header: use the field replyTo"},
	} {
		if got := messages(t, g.send(t, emailBody(tt.change))); got != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, tt.want)
		}
	}
	r := g.do(t, call{Method: http.MethodPost, Path: "/v1/recipients", Body: `{"recipients": [{"externalId": "1", "email": "Ana <ana@example.com>", "name": "Ana"}]}`})
	if got := messages(t, r); !strings.Contains(got, "recipients[0].name is not a field; recipients[].nome is") || !strings.Contains(got, "put the name into recipients[0].nome") {
		t.Error(got)
	}
	if got := messages(t, g.do(t, call{Path: "/v1/emails?page_size=10"})); got != "page_size is not a parameter; limit is" {
		t.Error(got)
	}
	if got := messages(t, g.upload(t, append(mailingForm(), part{name: "template", value: "x"}), nil)); !strings.HasPrefix(got, "subject must not be given together with a template: the template defines it") {
		t.Error(got)
	}
}

// Without recipient.email the recipient is the person at to.
func TestSend_RecipientWithoutAddress(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.accept(t, emailBody(func(f fields) {
		f["to"], f["recipient"] = "Ana@exämple.com", fields{"externalId": "CUST-1"}
	}))
	var address, to string
	err := g.SQL.QueryRowContext(t.Context(), `SELECT payload #>> '{recipient,email}', payload ->> 'to' FROM email_outbox WHERE id = $1`, id).Scan(&address, &to)
	if err != nil || address != to || to != "Ana@xn--exmple-cua.com" {
		t.Errorf("to %q, recipient.email %q, %v", to, address, err)
	}
	known := g.recipient(t, g.Company, "ana@example.com")
	g.accept(t, emailBody(with("recipient", fields{"recipientId": known})))
	if got := messages(t, g.send(t, emailBody(with("recipient", fields{})))); got != "recipient needs recipientId, externalId, cpfCnpj or cpfCnpjHash" {
		t.Error(got)
	}
}

// All faults of a body are reported at once, up to a limit, also for mailings.
func TestSend_AllViolations(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	const html = "<p onclick=a()>\n<script>x</script>\n<a href='javascript:x'>x</a>"
	want := []string{"EVENT_HANDLER at p/onclick in line 1", "SCRIPT_ELEMENT at script in line 2", "SCRIPT_URL at a/href in line 3"}
	for name, r := range map[string]reply{
		"an email":  g.send(t, emailBody(with("html", html))),
		"a mailing": g.upload(t, given(part{name: "html", value: html}), nil),
	} {
		p := r.problem(t)
		if r.Status != http.StatusUnprocessableEntity || p.Code != "INVALID_TEMPLATE" || len(p.Errors) != len(want) || p.Detail != "html has 3 faults" {
			t.Fatalf("%s: %s", name, r.Body)
		}
		for i, e := range p.Errors {
			if e.Field != "html" || e.Code != "INVALID_TEMPLATE" || !strings.HasPrefix(e.Message, want[i]) {
				t.Errorf("%s: %v, want %s", name, e, want[i])
			}
		}
	}
	many := g.send(t, emailBody(with("html", strings.Repeat("<p onclick=a()>\n", 500)))).problem(t)
	if len(many.Errors) != 20 || !strings.HasSuffix(many.Errors[19].Message, "; there may be more") {
		t.Errorf("%d faults: %v", len(many.Errors), many.Errors)
	}
	// A field in the wrong place does not hide other faults.
	if got := messages(t, g.upload(t, given(part{name: "html", value: "<p onclick='{{nome}}'><script>x</script>"}), nil)); !strings.Contains(got, "SCRIPT_ELEMENT at script") {
		t.Error(got)
	}
}

// Missing, malformed and wrong keys have different messages; none reveals whether a key exists.
func TestAuthenticate_MessagesNameTheFault(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	known := g.Key
	wrongSecret, revoked := known, g.newKey(t, g.Company, nil)
	wrongSecret.Secret = strings.Repeat("a", len(known.Secret))
	g.Run(t, `UPDATE api_keys SET revoked_at = now() WHERE key_id = $1`, revoked.ID)
	unknown, err := apikey.New("dev")
	if err != nil {
		t.Fatal(err)
	}
	const missing, malformed, wrong = "the request has no API key", "the API key is malformed", "the API key is not valid"
	for name, tt := range map[string]struct {
		header map[string]string
		want   string
	}{
		"none":                 {nil, missing},
		"an empty one":         {map[string]string{"Authorization": "Bearer ", "X-API-Key": " "}, "has no Bearer token"},
		"without Bearer":       {map[string]string{"Authorization": known.String()}, "has no Bearer token"},
		"another scheme":       {map[string]string{"Authorization": "Basic YTpi"}, "has no Bearer token"},
		"half of it":           {map[string]string{"Authorization": "Bearer gw_dev_" + known.ID}, malformed},
		"with quotes":          {map[string]string{"Authorization": `Bearer "` + known.String() + `"`}, malformed},
		"in capitals":          {map[string]string{"X-API-Key": strings.ToUpper(known.String())}, malformed},
		"a variable's name":    {map[string]string{"X-API-Key": "$API_KEY"}, malformed},
		"unknown":              {map[string]string{"X-API-Key": unknown.String()}, wrong},
		"with another secret":  {map[string]string{"X-API-Key": wrongSecret.String()}, wrong},
		"revoked":              {map[string]string{"Authorization": "Bearer " + revoked.String()}, wrong},
		"of another system":    {map[string]string{"Authorization": "Bearer gw_other_" + known.ID + "_" + known.Secret}, wrong},
		"an invented key":      {map[string]string{"Authorization": "Bearer gw_dev_x_y"}, wrong},
		"a UUID for a company": {map[string]string{"X-API-Key": uuid.NewString()}, malformed},
	} {
		r := g.do(t, call{Path: "/v1/emails", NoKey: true, Header: tt.header})
		p := r.problem(t)
		if r.Status != http.StatusUnauthorized || p.Code != "UNAUTHORIZED" || !strings.Contains(p.Detail, tt.want) || r.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %d %s, want %q", name, r.Status, r.Body, tt.want)
		}
		if strings.Contains(r.Body, known.ID) {
			t.Errorf("%s: the response contains the key's id", name)
		}
	}
}
