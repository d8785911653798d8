package httpapi_test

import (
	"archive/zip"
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store/storetest"
)

// workbook is the beginning of an .xlsx file.
func workbook(tb testing.TB) string {
	tb.Helper()
	var file bytes.Buffer
	w := zip.NewWriter(&file)
	if _, err := w.Create("xl/workbook.xml"); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return file.String()
}

// An invalid upload gets a clear error and leaves no row and no file.
func TestMailing_Refused(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	plain := part{name: "html", value: "<p>x</p>"}
	subject := part{name: "subject", value: "x"}
	for name, c := range map[string]struct {
		form   []part
		code   string
		faults map[string]string // by field; nil = not looked at
		words  []string
	}{
		"nothing":          {[]part{{name: "delivery", value: "at_least_once"}}, "VALIDATION_FAILED", map[string]string{"file": "REQUIRED", "subject": "REQUIRED", "html": "REQUIRED"}, nil},
		"no file":          {given(part{name: "file"}), "VALIDATION_FAILED", map[string]string{"file": "REQUIRED"}, nil},
		"empty":            {given(part{name: "file", filename: "x.csv"}), "EMPTY_FILE", map[string]string{"file": "EMPTY_FILE"}, nil},
		"only blank lines": {given(file("\n\n ;\n")), "", nil, nil},
		"only a header":    {given(file("e-mail;nome;cidade\n")), "NO_ROWS", map[string]string{"file": "NO_ROWS"}, nil},
		"delimiter":        {given(part{name: "delimiter", value: "x"}), "VALIDATION_FAILED", map[string]string{"delimiter": "NOT_ALLOWED"}, nil},
		"workbook":         {given(file(workbook(t))), "BINARY_FILE", nil, []string{"xlsx", "CSV UTF-8"}},
		"binary":           {given(file("email\n\x00\x01\x02a@example.com\n")), "BINARY_FILE", nil, nil},
		"no email column":  {given(file("nome;telefone\nAna;1\n"), plain, subject), "NO_EMAIL_COLUMN", nil, []string{"nome", "telefone"}},
		"no header":        {given(file("ana@example.com;Ana\n"), plain, subject), "NO_HEADER", nil, nil},
		"twice a column":   {given(file("email;nome;Nome\na@example.com;x;y\n")), "DUPLICATE_COLUMN", nil, nil},
		"many columns":     {given(file("email"+strings.Repeat(";c", 200)+"\n"), plain, subject), "TOO_MANY_COLUMNS", nil, []string{"200"}},
		"a long line":      {given(file("email;nome;"+strings.Repeat("x", 70000)+"\na@example.com;x\n"), plain, subject), "LINE_TOO_LONG", nil, []string{"line 1"}},
		"a NUL far in the file": {
			given(file("\xff\xfe"+wide("email;nome\n"+strings.Repeat("a@example.com;x\n", 20000)+"b@example.com;\x00\n")), plain, subject), "BINARY_FILE", nil,
			[]string{"line 20002", "replace them by spaces"},
		},
		"two encodings": {given(file("email;nome\na@example.com;João é São\nb@example.com;Jo\xe3o\n"), plain, subject), "INVALID_ENCODING", nil, []string{"line 3"}},
		"one bad line at the end": {
			given(file("nome;email\n"+strings.Repeat("Ana;a@example.com\n", 4000)+strings.Repeat("João;b@example.com\n", 1000)+"Z\xe9;c@example.com\n"), plain, subject),
			"INVALID_ENCODING",
			map[string]string{"file": "INVALID_ENCODING"},
			[]string{"line 5002", "encoding", "cp850"},
		},
		"wrong encoding": {given(file("nome;email\nÍris;a@example.com\n"), part{name: "encoding", value: "windows-1252"}, plain, subject), "INVALID_ENCODING", nil, []string{"line 2"}},
		"encoding":       {given(part{name: "encoding", value: "ebcdic"}), "VALIDATION_FAILED", map[string]string{"encoding": "NOT_ALLOWED"}, nil},
		"unknown field": {
			given(part{name: "html", value: "<p>{{sobrenome}} {{nome}} {{fone}}</p>"}), "UNKNOWN_MERGE_FIELD",
			map[string]string{"html": "UNKNOWN_MERGE_FIELD"},
			[]string{"{{sobrenome}}, {{fone}}", "E-mail, Nome, Cidade, CPF"},
		},
		"cpf as a field":  {given(part{name: "subject", value: "{{cpf}}"}), "FORBIDDEN_MERGE_FIELD", nil, []string{"{{cpf}}"}},
		"own column":      {given(file("email;token\na@example.com;x\n"), part{name: "html", value: "{{token}}"}, subject), "RESERVED_COLUMN", nil, nil},
		"script":          {given(part{name: "html", value: "<script>1</script>"}), "INVALID_TEMPLATE", map[string]string{"html": "INVALID_TEMPLATE"}, nil},
		"field in script": {given(part{name: "html", value: "<a onclick=\"{{nome}}\">x</a>"}), "INVALID_TEMPLATE", nil, nil},
		"unquoted field":  {given(part{name: "html", value: "<a href={{nome}}>x</a>"}), "INVALID_TEMPLATE", nil, nil},
		"open field":      {given(part{name: "subject", value: "Oi {{nome"}), "INVALID_TEMPLATE", map[string]string{"subject": "INVALID_TEMPLATE"}, nil},
		"large html":      {given(part{name: "html", value: strings.Repeat("x", 512<<10+1)}), "VALIDATION_FAILED", map[string]string{"html": "TOO_LONG"}, nil},
		"line in subject": {given(part{name: "subject", value: "a\r\nBcc: b@example.com"}), "VALIDATION_FAILED", map[string]string{"subject": "BAD_CHARACTER"}, nil},
		"unknown part":    {given(part{name: "assunto", value: "x"}), "VALIDATION_FAILED", map[string]string{"assunto": "UNKNOWN_FIELD"}, nil},
		"two subjects":    {append(mailingForm(), part{name: "subject", value: "b"}), "VALIDATION_FAILED", map[string]string{"subject": "DUPLICATE_FIELD"}, nil},
		"two files":       {append(mailingForm(), file("email\nx@example.com\n")), "VALIDATION_FAILED", map[string]string{"file": "DUPLICATE_FIELD"}, nil},
		"words": {
			given(part{name: "delivery", value: "twice"}, part{name: "dryRun", value: "yes"}, part{name: "start", value: "1"}, part{name: "sendAt", value: "amanhã"},
				part{name: "replyTo", value: "x"}, part{name: "from", value: "x"}, part{name: "tags", value: "a,b,c,d,e,f"}, part{name: "name", value: strings.Repeat("n", 256)}),
			"VALIDATION_FAILED",
			map[string]string{
				"delivery": "NOT_ALLOWED", "dryRun": "NOT_ALLOWED", "start": "NOT_ALLOWED", "sendAt": "INVALID_TIMESTAMP", "replyTo": "INVALID_EMAIL",
				"from": "INVALID_EMAIL", "tags": "TOO_MANY", "name": "TOO_LONG",
			},
			nil,
		},
		"tests":           {given(part{name: "test", value: "a@example.com,b"}), "VALIDATION_FAILED", map[string]string{"test[1]": "INVALID_EMAIL"}, nil},
		"many tests":      {given(part{name: "test", value: strings.Repeat("a@example.com,", 11)}), "VALIDATION_FAILED", map[string]string{"test": "TOO_MANY"}, nil},
		"test of nothing": {given(part{name: "test", value: "a@example.com"}, file("email\nx\n"), plain, subject), "VALIDATION_FAILED", map[string]string{"test": "NO_VALID_ROW"}, nil},
		"dry test":        {given(part{name: "test", value: "a@example.com"}, part{name: "dryRun", value: "true"}), "VALIDATION_FAILED", map[string]string{"test": "NOT_ALLOWED"}, nil},
		"far away":        {given(part{name: "sendAt", value: "2999-01-01T00:00:00Z"}), "VALIDATION_FAILED", map[string]string{"sendAt": "OUT_OF_RANGE"}, nil},
		"all at once": {
			given(file("nome\nAna\n"), part{name: "subject", value: "{{"}, part{name: "html", value: "<script>"}, part{name: "from", value: "a@foreign.example"}, part{name: "x", value: "y"}),
			"VALIDATION_FAILED",
			map[string]string{"file": "NO_EMAIL_COLUMN", "subject": "INVALID_TEMPLATE", "html": "INVALID_TEMPLATE", "from": "SENDER_NOT_ALLOWED", "x": "UNKNOWN_FIELD"},
			nil,
		},
	} {
		r := g.upload(t, c.form, map[string]string{"Idempotency-Key": "k"})
		if name == "only blank lines" { // the code depends on the CSV reader
			if r.Status != http.StatusUnprocessableEntity {
				t.Errorf("%s: %d %s", name, r.Status, r.Body)
			}
			continue
		}
		p := r.problem(t)
		got := map[string]string{}
		for _, f := range p.Errors {
			got[f.Field] = f.Code
		}
		if r.Status != http.StatusUnprocessableEntity || p.Code != c.code || c.faults != nil && !maps.Equal(got, c.faults) {
			t.Errorf("%s: %d %s", name, r.Status, r.Body)
		}
		for _, word := range c.words {
			if !strings.Contains(r.Body, word) && !slices.ContainsFunc(p.Errors, func(f struct{ Field, Code, Message string }) bool { return strings.Contains(f.Message, word) }) {
				t.Errorf("%s: the response does not contain %q: %s", name, word, r.Body)
			}
		}
		g.leavesNothing(t, name)
		if t.Failed() {
			return
		}
	}
	if strings.Contains(g.Log.String(), "example.com") {
		t.Errorf("the log holds an address: %s", g.Log.String())
	}
}

// wide is ASCII in UTF-16.
func wide(text string) string {
	var b strings.Builder
	for i := range len(text) {
		b.Write([]byte{text[i], 0})
	}
	return b.String()
}

func TestMailing_Unreadable(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	form := "multipart/form-data; boundary=b"
	for name, c := range map[string]struct {
		contentType, body string
		status            int
		code              string
	}{
		"json":        {"application/json", "{}", http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE"},
		"no boundary": {"multipart/form-data", "", http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE"},
		"urlencoded":  {"application/x-www-form-urlencoded", "a=b", http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE"},
		"no body":     {form, "", http.StatusBadRequest, "MALFORMED_FORM"},
		"no form":     {form, "email\na@example.com\n", http.StatusBadRequest, "MALFORMED_FORM"},
		"no end":      {form, "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x.csv\"\r\n\r\nemail\na@example.com\n", http.StatusBadRequest, "MALFORMED_FORM"},
		"many parts":  {form, strings.Repeat("--b\r\nContent-Disposition: form-data; name=\"tags\"\r\n\r\nx\r\n", 70) + "--b--\r\n", http.StatusBadRequest, "MALFORMED_FORM"},
	} {
		r := g.do(t, call{Method: http.MethodPost, Path: "/v1/mailings", Body: c.body, Header: map[string]string{"Content-Type": c.contentType}})
		if r.Status != c.status || r.problem(t).Code != c.code {
			t.Errorf("%s: %d %s", name, r.Status, r.Body)
		}
		g.leavesNothing(t, name)
	}
	compressed := uploadCall(t, mailingForm(), map[string]string{"Content-Encoding": "gzip"})
	if r := g.do(t, compressed); r.Status != http.StatusUnsupportedMediaType {
		t.Errorf("compressed: %d %s", r.Status, r.Body)
	}
	if r := g.upload(t, given(part{name: "dryRun", value: "true"}), map[string]string{"Content-Encoding": "identity"}); r.Status != http.StatusAccepted {
		t.Errorf("identity: %d %s", r.Status, r.Body)
	}
	if r := g.upload(t, given(part{name: "file", value: people}), nil); r.Status != http.StatusUnprocessableEntity || r.problem(t).Errors[0].Field != "name" {
		t.Errorf("a file without a name: %d %s", r.Status, r.Body)
	}
	g.mail(t, given(part{name: "file", value: people}, part{name: "name", value: "natal"}))
}

func TestMailing_Steps(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	r := g.upload(t, given(part{name: "start", value: "false"}), nil)
	if r.Status != http.StatusAccepted || r.json(t)["status"] != "PAUSED" {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM email_outbox`); n > 0 {
		t.Errorf("%d outbox rows although the mailing was not started", n)
	}
	id, _ := r.json(t)["mailingId"].(string)
	for _, c := range []struct {
		step string
		want string // the status after it; "" = 409
	}{
		{"retry-failed", ""},
		{"pause", ""},
		{"start", "QUEUED"},
		{"start", ""},
		{"resume", ""},
		{"pause", "PAUSED"},
		{"start", ""},
		{"resume", "QUEUED"},
		{"cancel", "CANCELLED"},
		{"cancel", ""},
		{"pause", ""},
		{"resume", ""},
	} {
		r := g.do(t, call{Method: http.MethodPost, Path: "/mailings/" + id + "/" + c.step})
		switch {
		case c.want == "" && (r.Status != http.StatusConflict || r.problem(t).Code != "MAILING_STATE"):
			t.Errorf("%s: %d %s", c.step, r.Status, r.Body)
		case c.want != "" && (r.Status != http.StatusOK || r.json(t)["status"] != c.want):
			t.Errorf("%s: %d %s", c.step, r.Status, r.Body)
		}
	}
	g.mail(t, mailingForm()) // after a cancel, the filename can be used again
}

// A file whose rows take too long is refused. An answer that says that the database is unavailable would make the client
// repeat the upload for ever.
func TestMailing_TooSlow(t *testing.T) {
	t.Parallel()
	g := start(t, func(p *httpapi.Params) { p.IngestTime = time.Nanosecond })
	r := g.upload(t, mailingForm(), nil)
	if r.Status != http.StatusUnprocessableEntity || r.problem(t).Code != "MAILING_TOO_SLOW" || r.Header.Get("Retry-After") != "" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	g.leavesNothing(t, "a mailing that took too long")
}
