package load

import (
	"bytes"
	"context"
	"fmt"
	"mime/multipart"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
)

// uploadPatience is how long the answer to an upload is waited for.
const uploadPatience = 20 * time.Second

// mail uploads the n-th mailing when its time has come.
func (l *Load) mail(ctx, offering context.Context, n int) {
	if service.Pause(offering, l.uploadAt(n)) != nil {
		return
	}
	rows := int(l.rows.Load())
	m, file := newSpreadsheet(n, rows)
	m.Key = l.params.Keys[n%len(l.params.Keys)]
	name := fmt.Sprintf("caos-%d.csv", n)
	if !doomed(n) { // of a mailing that is cancelled some rows never become emails
		importing := l.importListed(ctx, m.Key, n, rows)
		if n%2 == 0 { // else at the same time
			importing.Wait()
		}
		defer importing.Wait()
	}
	body, contentType, err := form(name, file)
	if err != nil {
		l.Book.refuse(fmt.Sprintf("%s: %v", name, err))
		return
	}
	got, ok := l.insist(ctx, request{
		method: http.MethodPost, path: "/mailings", key: m.Key, contentType: contentType,
		idempotency: name, body: body, patience: uploadPatience,
	}, name)
	if !ok {
		return
	}
	accepted, err := read[struct {
		MailingID                     uuid.UUID
		Accepted, Invalid, Duplicates int
	}](got)
	if err != nil || accepted.Accepted != len(m.People) || accepted.Invalid != m.Invalid || accepted.Duplicates != m.Repeats {
		l.Book.refuse(fmt.Sprintf("%s: %.300q, want %d accepted, %d invalid, %d duplicates", name, got.body, len(m.People), m.Invalid, m.Repeats))
		return
	}
	m.ID, m.Doomed = accepted.MailingID, doomed(n)
	l.Book.mailing(m)
	if m.Doomed {
		l.stop(ctx, m, n)
		return
	}
	for i := 0; i < rows; i += listedEvery {
		l.Book.state(Statement{How: Listed, Facts: Facts{Nome: listedName(i), Email: listed(n, i)}, Mailing: m.ID})
	}
}

// listedEvery: of so many rows of a mailing one is about a person who is imported too.
const listedEvery = 50

func listed(n, i int) string  { return fmt.Sprintf("mala%d-%d@%s", n, i, Domain) }
func listedName(i int) string { return fmt.Sprintf("João Conceição %d", i) }

// importListed begins to import persons whom the n-th mailing lists, with another name and a
// field that the list does not have. They have no externalId: their address names them.
func (l *Load) importListed(ctx context.Context, key string, n, rows int) *sync.WaitGroup {
	var people []Facts
	for i := 0; i < rows; i += listedEvery {
		people = append(people, Facts{RazaoSocial: fmt.Sprintf("Lista %d Ltda", i), Nome: fmt.Sprintf("Joana %d", i), Email: listed(n, i)})
	}
	var importing sync.WaitGroup
	importing.Go(func() { l.importAll(ctx, key, fmt.Sprintf("lista-%d", n), people) })
	return &importing
}

// newSpreadsheet makes a file with as many good rows as asked for, and a bad one and a
// repeated one for every hundred of them.
func newSpreadsheet(n, rows int) (Mailing, []byte) {
	m := Mailing{People: make(map[string]bool, rows)}
	var text bytes.Buffer
	text.WriteString("Nome;E-mail;Cidade\r\n")
	for i := range rows {
		m.People[listed(n, i)] = true
		fmt.Fprintf(&text, "%s;%s;São Luís\r\n", listedName(i), listed(n, i))
		switch i % 100 {
		case 13:
			m.Invalid++
			fmt.Fprintf(&text, "Ninguém;mala%d-%d;São Luís\r\n", n, i)
		case 57:
			m.Repeats++
			fmt.Fprintf(&text, "Outra vez;MALA%d-%d@%s;São Luís\r\n", n, i, Domain)
		}
	}
	return m, text.Bytes()
}

// form is the upload as a browser makes it.
func form(name string, file []byte) (body []byte, contentType string, err error) {
	var text bytes.Buffer
	writer := multipart.NewWriter(&text)
	for field, value := range map[string]string{
		"subject": "Olá, {{nome}}",
		"html":    `<p title="{{cidade}}">{{nome}}, seu código é {{token}}.</p><p><a href="{{unsubscribe_url}}">Sair</a></p>`,
		"text":    "{{nome}}: {{token}}",
	} {
		if err := writer.WriteField(field, value); err != nil {
			return nil, "", fmt.Errorf("write form: %w", err)
		}
	}
	part, err := writer.CreateFormFile("file", name)
	if err != nil {
		return nil, "", fmt.Errorf("write form: %w", err)
	}
	if _, err := part.Write(file); err != nil {
		return nil, "", fmt.Errorf("write form: %w", err)
	}
	if err := writer.Close(); err != nil {
		return nil, "", fmt.Errorf("write form: %w", err)
	}
	return text.Bytes(), writer.FormDataContentType(), nil
}

// Resume lets a mailing go on that gave up after three tries, as its tenant does who
// sees it FAILED.
func (l *Load) Resume(ctx context.Context, m Mailing) error {
	got, err := l.client.do(ctx, request{method: http.MethodPost, path: "/mailings/" + m.ID.String() + "/resume", key: m.Key})
	if err != nil {
		return fmt.Errorf("resume mailing: %w", err)
	}
	if got.status >= http.StatusBadRequest && got.status != http.StatusConflict {
		return fmt.Errorf("resume mailing: %s", unexpected(got.status, got.body))
	}
	return nil
}
