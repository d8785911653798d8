package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"testing"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/blob"
	"email-gateway/shared/store/storetest"
)

// part is a part of a form. A part with a filename is a file.
type part struct{ name, filename, value string }

// people is a file as saved by the Portuguese Excel: Windows-1252 with semicolons.
const people = "E-mail;Nome;Cidade;CPF\r\n" +
	"jo\xe3o@example.com;Jo\xe3o;S\xe3o Paulo;\r\n" + // an address with ã: syntax
	"maria@example.com;Maria;Bras\xedlia;529.982.247-25\r\n" +
	"ana@example.com;Ana;;\r\n" +
	"MARIA@example.com;Maria outra vez;;\r\n" + // a duplicate
	";Ningu\xe9m;;\r\n" +
	"eva@example.com;Eva;;111.111.111-11\r\n"

// mailingForm is a valid form with the file of people.
func mailingForm() []part {
	return []part{
		{name: "subject", value: "Olá, {{nome}}"},
		{name: "html", value: `<p>{{nome}} de {{cidade}}: {{token}}</p><a href="{{unsubscribe_url}}">sair</a>`},
		{name: "file", filename: "clientes.csv", value: people},
	}
}

// given changes or adds parts of the form; an empty value removes a part.
func given(changed ...part) []part {
	form := mailingForm()
	for _, c := range changed {
		kept := form[:0]
		for _, p := range form {
			if p.name != c.name {
				kept = append(kept, p)
			}
		}
		form = kept
	}
	for _, c := range changed {
		if c.value != "" || c.filename != "" {
			form = append(form, c)
		}
	}
	return form
}

func file(content string) part { return part{name: "file", filename: "lista.csv", value: content} }

// upload posts a form; header may be nil.
func (g *gateway) upload(tb testing.TB, form []part, header map[string]string) reply {
	tb.Helper()
	return g.do(tb, uploadCall(tb, form, header))
}

func uploadCall(tb testing.TB, form []part, header map[string]string) call {
	tb.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for _, p := range form {
		writePart(tb, w, p)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	c := call{Method: http.MethodPost, Path: "/mailings", Reader: &body, Header: map[string]string{"Content-Type": w.FormDataContentType()}}
	for name, value := range header {
		c.Header[name] = value
	}
	return c
}

func writePart(tb testing.TB, w *multipart.Writer, p part) io.Writer {
	tb.Helper()
	var to io.Writer
	var err error
	if p.filename != "" {
		to, err = w.CreateFormFile(p.name, p.filename)
	} else {
		to, err = w.CreateFormField(p.name)
	}
	if err == nil {
		_, err = io.WriteString(to, p.value)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return to
}

// mail uploads a valid form and returns the mailing's id.
func (g *gateway) mail(tb testing.TB, form []part) string {
	tb.Helper()
	r := g.upload(tb, form, nil)
	if r.Status != http.StatusAccepted {
		tb.Fatalf("%d %s", r.Status, r.Body)
	}
	id, _ := r.json(tb)["mailingId"].(string)
	return id
}

// mailingRows counts all rows that an upload may have left.
func (g *gateway) mailingRows(tb testing.TB) int {
	tb.Helper()
	return g.rows(tb) + storetest.Ask[int](tb, g.Database, `SELECT (SELECT count(*) FROM mailings) + (SELECT count(*) FROM mailing_entries)
		+ (SELECT count(*) FROM mailing_rejects) + (SELECT count(*) FROM dispatch_lanes WHERE mailing_id IS NOT NULL)`)
}

// leavesNothing fails the test if an upload left a row or a file.
func (g *gateway) leavesNothing(tb testing.TB, what string) {
	tb.Helper()
	if n, files := g.mailingRows(tb), g.Storage.files(tb); n > 0 || len(files) > 0 {
		tb.Errorf("%s: %d rows and the files %q stay", what, n, files)
	}
}

// brokenBucket is an unreachable storage.
type brokenBucket struct{ httpapi.Bucket }

func (brokenBucket) Put(_ context.Context, _ string, r io.Reader) error {
	_, _ = io.CopyN(io.Discard, r, 10)
	return fmt.Errorf("put: %w: no route to host", blob.ErrUnavailable)
}

func (brokenBucket) Ping(context.Context) error { return fmt.Errorf("ping: %w", blob.ErrUnavailable) }
