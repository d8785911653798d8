package httpapi_test

import (
	"encoding/csv"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
)

func TestMailing(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	r := g.upload(t, given(part{name: "text", value: "Olá, {{nome}}"}, part{name: "tags", value: "natal, loja"}, part{name: "from", value: "Loja <loja@acme.example>"}), nil)
	if r.Status != http.StatusUnprocessableEntity || r.problem(t).Code != "SENDER_NOT_ALLOWED" {
		t.Errorf("a sender of a domain that is not the company's: %d %s", r.Status, r.Body)
	}
	g.leavesNothing(t, "a foreign sender")
	r = g.upload(t, given(part{name: "text", value: "Olá, {{nome}}: {{unsubscribe_url}}"}, part{name: "tags", value: "natal, loja"}), nil)
	answer := r.json(t)
	id, _ := answer["mailingId"].(string)
	want := map[string]any{"mailingId": id, "status": "QUEUED", "accepted": 2.0, "invalid": 3.0, "duplicates": 1.0, "emptyFields": 1.0}
	if diff := cmp.Diff(want, answer); r.Status != http.StatusAccepted || diff != "" || r.Header.Get("Location") != "/v1/mailings/"+id {
		t.Fatalf("%d %v %s", r.Status, r.Header, diff)
	}
	if g.Wakes.Load() != 1 {
		t.Errorf("%d wakes", g.Wakes.Load())
	}
	if files := g.Storage.files(t); len(files) != 1 || files[0] != id+".csv" {
		t.Errorf("files %q", files)
	}
	for _, path := range []string{"/mailings/", "/v1/mailings/"} {
		shown := g.do(t, call{Path: path + id}).json(t)
		for field, value := range map[string]any{
			"mailingId": id, "status": "QUEUED", "filename": "clientes.csv", "total": 6.0, "accepted": 2.0, "invalid": 3.0, "duplicates": 1.0, "sent": 0.0,
			"from": "Acme <billing@acme.example>", "subject": "Olá, {{nome}}", "dryRun": false, "delivery": "at_least_once",
		} {
			if shown[field] != value {
				t.Errorf("%s is %v, want %v", field, shown[field], value)
			}
		}
		if reasons := map[string]any{"SYNTAX": 1.0, "MISSING_EMAIL": 1.0, "INVALID_CPF_CNPJ": 1.0}; cmp.Diff(reasons, shown["invalidByReason"]) != "" {
			t.Errorf("%v", shown["invalidByReason"])
		}
	}
	verdicts := g.do(t, call{Path: "/mailings/" + id + "/verdicts"})
	lines, err := csv.NewReader(strings.NewReader(verdicts.Body)).ReadAll()
	wantLines := [][]string{{"line", "column", "code", "lastLine"}, {"2", "E-mail", "SYNTAX", ""}, {"4", "Cidade", "EMPTY_FIELD", ""}, {"5", "E-mail", "DUPLICATE", ""}, {"6", "E-mail", "MISSING_EMAIL", ""}, {"7", "CPF", "INVALID_CPF_CNPJ", ""}}
	if diff := cmp.Diff(wantLines, lines); err != nil || diff != "" || !strings.Contains(verdicts.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("%v %s", err, diff)
	}
	for _, secret := range []string{"example.com", "52998224725", "529.982"} {
		if strings.Contains(g.Log.String(), secret) {
			t.Errorf("the log contains %s: %s", secret, g.Log.String())
		}
	}
	if !strings.Contains(g.Log.String(), `"mailingId":"`+id) {
		t.Errorf("the log does not name the mailing: %s", g.Log.String())
	}
}

func TestMailing_Entries(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.mail(t, mailingForm())
	read := func(query string) (found []string, next string) {
		t.Helper()
		page := g.do(t, call{Path: "/mailings/" + id + "/entries" + query}).json(t)
		entries, _ := page["entries"].([]any)
		for _, e := range entries {
			entry, _ := e.(map[string]any)
			found = append(found, fmt.Sprint(entry["line"], " ", entry["email"], " ", entry["status"]))
		}
		next, _ = page["nextCursor"].(string)
		return found, next
	}
	all := []string{"2 joão@example.com INVALID", "3 maria@example.com PENDING", "4 ana@example.com PENDING"}
	if found, next := read(""); cmp.Diff(all, found) != "" || next != "" {
		t.Errorf("%v %q", found, next)
	}
	if found, _ := read("?status=INVALID"); cmp.Diff(all[:1], found) != "" {
		t.Errorf("%v", found)
	}
	first, next := read("?limit=2")
	rest, last := read("?limit=2&cursor=" + next)
	if diff := cmp.Diff(all, slices.Concat(first, rest)); diff != "" || next == "" || last != "" {
		t.Errorf("%s %q %q", diff, next, last)
	}
	for _, query := range []string{"?status=SENDING", "?cursor=x", "?limit=101", "?what=x"} {
		if r := g.do(t, call{Path: "/mailings/" + id + "/entries" + query}); r.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", query, r.Status)
		}
	}
	var fields, hash, token string
	var encrypted []byte
	err := g.SQL.QueryRowContext(t.Context(), `SELECT fields::text, cpf_cnpj_hash, cpf_cnpj_enc, token FROM mailing_entries WHERE email = 'maria@example.com'`).
		Scan(&fields, &hash, &encrypted, &token)
	bare, errOpen := g.Ring.Open(g.Company, encrypted)
	if err != nil || errOpen != nil || bare != "52998224725" || len(hash) != 64 || fields != "{Brasília}" || len(token) != 26 {
		t.Errorf("%v %v %q %q %q %q", err, errOpen, bare, hash, fields, token)
	}
}

// Parts are accepted in any order, under both prefixes.
func TestMailing_AnyOrder(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	form := mailingForm()
	orders := [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	for n, order := range orders {
		parts := []part{form[order[0]], form[order[1]], form[order[2]]}
		for i := range parts {
			if parts[i].name == "file" {
				parts[i].filename = fmt.Sprintf("lista-%d.csv", n)
			}
		}
		c := uploadCall(t, parts, nil)
		c.Path = []string{"/mailings", "/v1/mailings"}[n%2]
		if r := g.do(t, c); r.Status != http.StatusAccepted || r.json(t)["accepted"] != 2.0 {
			t.Errorf("%v: %d %s", order, r.Status, r.Body)
		}
	}
	page := g.do(t, call{Path: "/mailings?limit=4"}).json(t)
	first, _ := page["mailings"].([]any)
	next, _ := page["nextCursor"].(string)
	page = g.do(t, call{Path: "/v1/mailings?limit=4&cursor=" + next}).json(t)
	rest, _ := page["mailings"].([]any)
	if len(first) != 4 || len(rest) != 2 || page["nextCursor"] != nil {
		t.Errorf("%d and %d mailings, then %v", len(first), len(rest), page["nextCursor"])
	}
}

func TestMailing_DryRun(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for range 2 { // a dry run does not reserve the filename
		r := g.upload(t, given(part{name: "dryRun", value: "true"}), nil)
		if r.Status != http.StatusAccepted || r.json(t)["status"] != "COMPLETED" || r.json(t)["accepted"] != 2.0 {
			t.Fatalf("%d %s", r.Status, r.Body)
		}
	}
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM email_outbox`); n > 0 {
		t.Errorf("%d outbox rows", n)
	}
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM mailing_entries`); n != 6 {
		t.Errorf("%d entries", n)
	}
	g.mail(t, mailingForm())
}

// A dry run counts the rows with empty fields and shows the first emails, which are not stored. With
// emptyFields=reject such rows are rejected.
func TestMailing_EmptyFields(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	form := []part{
		{name: "subject", value: "Olá, {{nome|cliente}}!"},
		{name: "html", value: `<p>{{nome|cliente}} de {{cidade}}</p><a href="{{unsubscribe_url}}">sair</a>`},
		{name: "text", value: "{{nome|}}"},
		file("email;nome;cidade\n;x;y\na@example.com;Ana;Recife\nA@example.com;Ana;Recife\nb@example.com\nc@example.com;Caio;\nd@example.com;D;Natal\n"),
	}
	with := func(name, value string) []part { return append(slices.Clone(form), part{name: name, value: value}) }
	dry := g.upload(t, with("dryRun", "true"), map[string]string{"Idempotency-Key": "k"})
	again := g.upload(t, with("dryRun", "true"), map[string]string{"Idempotency-Key": "k"})
	if again.Body != dry.Body || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s, then %s", dry.Body, again.Body)
	}
	answer := dry.json(t)
	if dry.Status != http.StatusAccepted || answer["accepted"] != 4.0 || answer["emptyFields"] != 2.0 || answer["invalid"] != 1.0 {
		t.Fatalf("%d %s", dry.Status, dry.Body)
	}
	var got []string
	previews, _ := answer["preview"].([]any)
	for _, p := range previews {
		shown, _ := p.(map[string]any)
		html, _, _ := strings.Cut(fmt.Sprint(shown["html"]), "<a")
		text, _, _ := strings.Cut(fmt.Sprint(shown["text"]), "\n") // made from html if the template's text is empty
		got = append(got, fmt.Sprint(shown["line"], " ", shown["email"], " ", shown["subject"], " ", html, " ", text))
	}
	want := []string{
		"3 a@example.com Olá, Ana! <p>Ana de Recife</p> Ana", "5 b@example.com Olá, cliente! <p>cliente de </p> cliente de", "6 c@example.com Olá, Caio! <p>Caio de </p> Caio",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM mailings WHERE convert_from(answer, 'UTF8') LIKE '%preview%'`) +
		storetest.Ask[int](t, g.Database, `SELECT count(*) FROM idempotency_keys WHERE convert_from(answer, 'UTF8') LIKE '%preview%'`); n > 0 {
		t.Errorf("%d stored answers have the emails", n)
	}

	id := g.mail(t, form)
	shown := g.do(t, call{Path: "/mailings/" + id}).json(t)
	if shown["subject"] != "Olá, {{nome|cliente}}!" || shown["emptyFields"] != 2.0 || shown["accepted"] != 4.0 {
		t.Errorf("%v", shown)
	}
	verdicts := func(id string) string {
		return strings.ReplaceAll(g.do(t, call{Path: "/mailings/" + id + "/verdicts"}).Body, "\r\n", " ")
	}
	if got := verdicts(id); got != "line,column,code,lastLine 2,email,MISSING_EMAIL, 4,email,DUPLICATE, 5,cidade,EMPTY_FIELD, 6,cidade,EMPTY_FIELD, " {
		t.Error(got)
	}
	// The stored templates have no defaults.
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM mailings m JOIN mailing_entries e ON e.mailing_id = m.id
		WHERE m.id = '`+id+`' AND m.subject = 'Olá, {{d1}}!' AND m.fields = '{d1,cidade,d2}' AND e.fields IN ('{Ana,Recife,Ana}', '{cliente,"",""}', '{Caio,"",Caio}', '{D,Natal,D}')`); n != 4 {
		t.Errorf("%d of 4 entries", n)
	}

	strict := g.upload(t, append(with("emptyFields", "reject"), part{name: "name", value: "strict"}), nil).json(t)
	if strict["accepted"] != 2.0 || strict["invalid"] != 3.0 || strict["emptyFields"] != 0.0 {
		t.Errorf("%v", strict)
	}
	if got := verdicts(fmt.Sprint(strict["mailingId"])); got != "line,column,code,lastLine 2,email,MISSING_EMAIL, 4,email,DUPLICATE, 5,cidade,EMPTY_FIELD, 6,cidade,EMPTY_FIELD, " {
		t.Error(got)
	}
	if r := g.upload(t, with("emptyFields", "ignore"), nil); r.Status != http.StatusUnprocessableEntity {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// Rows that have an id, or without one a CNPJ, in common are stored as one recipient: the answer, also that of a dry run, warns
// of it and names the column. Duplicate addresses and an id of three rows are not counted.
func TestMailing_SharedIDs(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	const header, a, b = "email;código do cliente;CNPJ;CPF\n", ";11.222.333/0001-81;\n", ";;529.982.247-25\n"
	for _, c := range []struct {
		rows string
		want []string
	}{
		{"a@example.com;C1\nA@example.com;C1\nb@example.com;C1\nc@example.com;C1\nc2@example.com;C2\nd@example.com;\ne@example.com;\nf@example.com;\n", nil},
		{
			"a@example.com;C1\nb@example.com;C1\nc@example.com;C1\nc1@example.com;C1\nd@example.com;C2\ne@example.com;C3\nf@example.com;C3\ng@example.com;C3\nh@example.com;C3\ni@example.com;C3\n",
			[]string{"about 9 rows have an id (column código do cliente)"},
		},
		{"a@example.com;0\nb@example.com;0\nc@example.com;0\nd@example.com;0\ne@example.com;0\n", nil},
		{"a@example.com;" + a + "b@example.com;" + a + "c@example.com;" + a + "d@example.com;" + b + "e@example.com;C1" + a + "f@example.com;C2" + a, nil},
		{
			"a@example.com;" + a + "b@example.com;0" + a + "c@example.com;" + a + "d@example.com;" + a + "e@example.com;C1" + a + "f@example.com;C1" + b + "g@example.com;C1\nh@example.com;C1\n",
			[]string{"about 4 rows have an id (column código do cliente)", "about 4 rows have no id, and a CPF or CNPJ (column CPF, CNPJ)"},
		},
	} {
		answer := g.upload(t, []part{
			{name: "subject", value: "Oi"},
			{name: "html", value: `<a href="{{unsubscribe_url}}">sair</a>`},
			{name: "dryRun", value: "true"},
			file(header + c.rows),
		}, nil)
		warned := strings.Count(answer.Body, `"SHARED_RECIPIENT"`) == len(c.want)
		for _, message := range c.want {
			warned = warned && strings.Contains(answer.Body, message)
		}
		if answer.Status != http.StatusAccepted || !warned {
			t.Errorf("%q: %d %s", c.rows, answer.Status, answer.Body)
		}
	}
}

func TestMailing_Replay(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	first := g.upload(t, mailingForm(), nil)
	form := mailingForm()
	slices.Reverse(form)
	again := g.upload(t, form, nil)
	if again.Status != http.StatusAccepted || again.Body != first.Body || again.Header.Get("Idempotent-Replayed") != "true" || again.Header.Get("Location") != first.Header.Get("Location") {
		t.Errorf("%d %v %s", again.Status, again.Header, again.Body)
	}
	for name, other := range map[string]part{
		"subject": {name: "subject", value: "Outro"}, "html": {name: "html", value: "<p>outro</p>"}, "text": {name: "text", value: "outro"},
		"file": {name: "file", filename: "clientes.csv", value: people + "x@example.com;X;;\r\n"}, "sendAt": {name: "sendAt", value: "2026-01-01T00:00:00Z"},
		"tags": {name: "tags", value: "x"}, "replyTo": {name: "replyTo", value: "x@acme.example"}, "delivery": {name: "delivery", value: "at_most_once"},
		"start": {name: "start", value: "false"}, "test": {name: "test", value: "eu@acme.example"},
	} {
		r := g.upload(t, given(other), nil)
		if r.Status != http.StatusConflict || r.problem(t).Code != "FILENAME_EXISTS" || !strings.Contains(r.Body, "the part name") {
			t.Errorf("the same upload with another %s: %d %s", name, r.Status, r.Body)
		}
	}
	if n, files := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM mailings`), g.Storage.files(t); n != 1 || len(files) != 1 {
		t.Errorf("%d mailings, files %q", n, files)
	}
	// macOS writes the accents of a filename as combining characters (NFD).
	mac, windows := part{name: "file", filename: "promoc\u0327a\u0303o.csv", value: people}, part{name: "file", filename: "promoção.csv", value: people}
	composed := g.upload(t, given(mac), nil)
	for _, same := range []part{windows, {name: "name", value: "promoc\u0327a\u0303o.csv"}} {
		if r := g.upload(t, given(same), nil); r.Status != http.StatusAccepted || r.Body != composed.Body || r.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the same name as %s: %d %s, first %s", same.name, r.Status, r.Body, composed.Body)
		}
	}
	if r := g.upload(t, given(part{name: "name", value: "Natal 2026"}), nil); r.Status != http.StatusAccepted || r.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("another name: %d %s", r.Status, r.Body)
	}
	other := g.newKey(t, g.Database.Company(t), nil)
	c := uploadCall(t, mailingForm(), nil)
	c.Key = other.String()
	if r := g.do(t, c); r.Status != http.StatusAccepted || r.Body == first.Body {
		t.Errorf("another company: %d %s", r.Status, r.Body)
	}
}

func TestMailing_IdempotencyKey(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	key := map[string]string{"Idempotency-Key": "natal-2026"}
	first := g.upload(t, mailingForm(), key)
	again := g.upload(t, mailingForm(), key)
	if first.Status != http.StatusAccepted || again.Status != http.StatusAccepted || again.Body != first.Body || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %s, then %d %s", first.Status, first.Body, again.Status, again.Body)
	}
	if r := g.upload(t, given(part{name: "name", value: "outro"}), key); r.Status != http.StatusUnprocessableEntity || r.problem(t).Code != "IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.upload(t, mailingForm(), map[string]string{"Idempotency-Key": "ç"}); r.Status != http.StatusBadRequest {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	// A dry run does not reserve the filename, so only the key makes it idempotent.
	dry := given(part{name: "dryRun", value: "true"})
	one := g.upload(t, dry, map[string]string{"Idempotency-Key": "ensaio"})
	two := g.upload(t, dry, map[string]string{"Idempotency-Key": "ensaio"})
	if one.Body != two.Body || two.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s, then %s", one.Body, two.Body)
	}
	// An accepted request is replayed although it would be rejected now.
	g.Run(t, `UPDATE idempotency_keys SET key = 'gone' WHERE key = 'natal-2026'`)
	if r := g.upload(t, mailingForm(), key); r.Status != http.StatusAccepted || r.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("by its filename: %d %s", r.Status, r.Body)
	}
	if n, files := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM mailings`), g.Storage.files(t); n != 2 || len(files) != 1 { // the dry run has stored no file
		t.Errorf("%d mailings, files %q", n, files)
	}
}

func TestMailing_Tests(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.mail(t, given(part{name: "test", value: "chefe@acme.example, CHEFE@acme.example"}, part{name: "test", value: "eu@acme.example"}, part{name: "text", value: "{{email}} {{cidade}}"},
		part{name: "replyTo", value: "sac@acme.example"}))
	rows, err := g.SQL.QueryContext(t.Context(), `SELECT payload ->> 'to', payload ->> 'subject', html, text_body, priority, payload #>> '{headers,List-Unsubscribe}', payload ->> 'replyTo'
		FROM email_outbox WHERE target = 'email:send' ORDER BY payload ->> 'to'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var to []string
	for rows.Next() {
		var address, subject, html, text, header, replyTo string
		var priority int
		if err := rows.Scan(&address, &subject, &html, &text, &priority, &header, &replyTo); err != nil {
			t.Fatal(err)
		}
		to = append(to, address)
		_, link, _ := strings.Cut(html, "https://mail.acme.example/u/")
		token, _, _ := strings.Cut(link, `"`)
		opened, err := unsubscribeKeys(t).Open(token)
		if subject != "Olá, Maria" || !strings.Contains(html, "<p>Maria de Brasília: ") || header != "mailing:"+id || text != "maria@example.com Brasília" ||
			priority != 1 || err != nil || opened.Address != address || opened.Company != g.Company || replyTo != "sac@acme.example" {
			t.Errorf("%q %q %q %d %q %v %+v", subject, html, text, priority, header, err, opened)
		}
	}
	if diff := cmp.Diff([]string{"chefe@acme.example", "eu@acme.example"}, to); rows.Err() != nil || diff != "" {
		t.Error(diff)
	}
	// Queues and dead letters show a job in clear text.
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM email_outbox WHERE strpos(payload::text, '/u/') > 0`); n > 0 {
		t.Errorf("%d jobs have an unsubscribe token", n)
	}
	// The token of a test email belongs to no entry.
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM email_outbox o JOIN mailing_entries e ON strpos(o.html, e.token) > 0`); n > 0 {
		t.Errorf("%d test emails have the token of an entry", n)
	}
	// Test emails are due before the others.
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM email_outbox WHERE target = 'mailing.process' AND next_at > created_at + interval '3 s'`); n != 1 {
		t.Error("an email is due before the test emails")
	}
}

// The CPF of an entry of a dry run is not stored, because nothing would use it.
func TestMailing_DryRunKeepsNoTaxID(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	g.mail(t, given(part{name: "dryRun", value: "true"}))
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM mailing_entries WHERE cpf_cnpj_enc IS NOT NULL`); n != 0 || len(g.Storage.files(t)) != 0 {
		t.Errorf("%d numbers, files %q", n, g.Storage.files(t))
	}
}

// A file without a valid row is completed at once, and its name can be reused.
func TestMailing_NothingToSend(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	bad := g.upload(t, given(file("e-mail;nome;cidade\nninguém;x;y\n")), nil)
	if bad.Status != http.StatusAccepted || bad.json(t)["status"] != "COMPLETED" || bad.json(t)["accepted"] != 0.0 {
		t.Errorf("%d %s", bad.Status, bad.Body)
	}
	g.mail(t, given(file("e-mail;nome;cidade\nana@example.com;x;y\n")))
}

// A given delimiter disables detection.
func TestMailing_Delimiter(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	r := g.upload(t, given(file("e-mail,extra;nome;cidade\n"), part{name: "delimiter", value: ","}), nil)
	if r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, "nome;cidade") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	g.mail(t, given(file("e-mail|nome|cidade\nana@example.com|A;B;C|x,y\n"), part{name: "delimiter", value: "|"}))
}

// Received mailings that wait for their ingestion keep their templates in memory: at most four per company.
func TestMailings_FormsInMemory(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	other := g.newKey(t, g.Database.Company(t), nil).String()
	release := g.hold(t, `LOCK TABLE mailing_entries IN ACCESS EXCLUSIVE MODE`)
	var uploads sync.WaitGroup
	send := func(name, key string) {
		c := uploadCall(t, append(mailingForm(), part{name: "name", value: name}), nil)
		c.Key = key
		uploads.Go(func() {
			if r := g.do(t, c); r.Status != http.StatusAccepted {
				t.Errorf("%s: %d %s", name, r.Status, r.Body)
			}
		})
	}
	for i := range 8 {
		send(fmt.Sprint("own ", i), g.Key.String())
	}
	waittest.Until(t, "two are written", func() bool { return storetest.Ask[int](t, g.Database, waitingSQL) == 2 })
	send("of another company", other)
	waittest.Until(t, "one of another company is written", func() bool { return storetest.Ask[int](t, g.Database, waitingSQL) == 3 })
	files := 0
	if err := filepath.WalkDir(string(g.Storage), func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !strings.HasSuffix(entry.Name(), ".attrs") {
			files++
		}
		return err
	}); err != nil || files > 5 {
		t.Errorf("%d mailings have been received, %v", files, err)
	}
	release()
	uploads.Wait()
}
