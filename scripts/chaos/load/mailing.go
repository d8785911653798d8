package load

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"mime/multipart"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
)

// uploadTimeout is the timeout of an upload.
const uploadTimeout = 20 * time.Second

// uploadMailing uploads the n-th mailing at its time.
func (l *Load) uploadMailing(ctx, offering context.Context, n int) {
	if service.Pause(offering, l.uploadAt(n)) != nil {
		return
	}
	rows := int(l.rows.Load())
	m, file := newSpreadsheet(n, rows)
	m.Tenant = n % len(l.params.Keys)
	m.Key = l.params.Keys[m.Tenant]
	name := fmt.Sprintf("caos-%d.csv", n)
	if !isCancelled(n) { // some rows of a cancelled mailing never become emails
		importing := l.importListed(ctx, m.Key, n, rows)
		if n%2 == 0 { // else at the same time
			importing.Wait()
		}
		defer importing.Wait()
	}
	fields := maps.Clone(mailingFields)
	if n%2 == 0 {
		f := l.newFile(mailingFiles + n)
		id, ok := l.storeFile(ctx, m.Key, f)
		if !ok {
			return
		}
		m.Attachments = []Attachment{f.Attachment}
		fields["attachments"] = fmt.Sprintf(`[{"filename": %q, "contentType": %q, "fileId": %q}]`, f.Name, f.Type, id)
	}
	body, contentType, err := form(name, file, fields)
	if err != nil {
		l.Ledger.addRefusal(fmt.Sprintf("%s: %v", name, err))
		return
	}
	got, ok := l.retryUntilAccepted(ctx, request{
		method: http.MethodPost, path: "/mailings", key: m.Key, contentType: contentType,
		idempotency: name, body: body, timeout: uploadTimeout,
	}, name)
	if !ok {
		return
	}
	accepted, err := read[struct {
		MailingID                     uuid.UUID
		Accepted, Invalid, Duplicates int
	}](got)
	if err != nil || accepted.Accepted != len(m.People) || accepted.Invalid != m.Invalid || accepted.Duplicates != m.Repeats {
		l.Ledger.addRefusal(fmt.Sprintf("%s: %.300q, want %d accepted, %d invalid, %d duplicates", name, got.body, len(m.People), m.Invalid, m.Repeats))
		return
	}
	m.ID, m.CancelPlanned = accepted.MailingID, isCancelled(n)
	l.Ledger.addMailing(m)
	if m.CancelPlanned {
		l.cancelMailing(ctx, m, n)
		return
	}
	for i := 0; i < rows; i += importedEvery {
		l.Ledger.addStatement(Statement{How: Listed, Fields: Fields{Nome: mailingName(i), Email: mailingAddress(n, i)}, Mailing: m.ID})
	}
}

// importedEvery: one row of so many is about a person who is also imported.
const importedEvery = 50

func mailingAddress(n, i int) string { return fmt.Sprintf("mala%d-%d@%s", n, i, Domain) }
func mailingName(i int) string       { return fmt.Sprintf("João Conceição %d", i) }

// importListed starts to import persons of the n-th mailing, with another name and a field that the
// file does not have. They have no externalId: their address identifies them.
func (l *Load) importListed(ctx context.Context, key string, n, rows int) *sync.WaitGroup {
	var people []Fields
	for i := 0; i < rows; i += importedEvery {
		people = append(people, Fields{RazaoSocial: fmt.Sprintf("Lista %d Ltda", i), Nome: fmt.Sprintf("Joana %d", i), Email: mailingAddress(n, i)})
	}
	var importing sync.WaitGroup
	importing.Go(func() { l.importAll(ctx, key, fmt.Sprintf("lista-%d", n), people) })
	return &importing
}

// newSpreadsheet returns a file with the number of valid rows, plus an invalid one and a duplicate
// for every hundred of them.
func newSpreadsheet(n, rows int) (Mailing, []byte) {
	m := Mailing{People: make(map[string]string, rows)}
	var text bytes.Buffer
	text.WriteString("Nome;E-mail;Cidade\r\n")
	for i := range rows {
		m.People[mailingAddress(n, i)] = "Olá, " + mailingName(i)
		fmt.Fprintf(&text, "%s;%s;São Luís\r\n", mailingName(i), mailingAddress(n, i))
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

// mailingFields are the fields of every mailing.
var mailingFields = map[string]string{
	"subject": "Olá, {{nome}}",
	"html":    `<p title="{{cidade}}">{{nome}}, seu código é {{token}}.</p><p><a href="{{unsubscribe_url}}">Sair</a></p>`,
	"text":    "{{nome}}: {{token}}",
}

// form returns the upload as a browser encodes it.
func form(name string, file []byte, fields map[string]string) (body []byte, contentType string, err error) {
	var text bytes.Buffer
	writer := multipart.NewWriter(&text)
	for field, value := range fields {
		if err := writer.WriteField(field, value); err != nil {
			return nil, "", fmt.Errorf("write form: %w", err)
		}
	}
	component, err := writer.CreateFormFile("file", name)
	if err != nil {
		return nil, "", fmt.Errorf("write form: %w", err)
	}
	if _, err := component.Write(file); err != nil {
		return nil, "", fmt.Errorf("write form: %w", err)
	}
	if err := writer.Close(); err != nil {
		return nil, "", fmt.Errorf("write form: %w", err)
	}
	return text.Bytes(), writer.FormDataContentType(), nil
}

// Resume resumes a mailing whose job failed after three tries, as its tenant does when it is
// FAILED.
func (l *Load) Resume(ctx context.Context, m Mailing) error {
	got, err := l.client.do(ctx, request{method: http.MethodPost, path: "/mailings/" + m.ID.String() + "/resume", key: m.Key})
	if err != nil {
		return fmt.Errorf("resume mailing: %w", err)
	}
	if got.status >= http.StatusBadRequest && got.status != http.StatusConflict {
		return fmt.Errorf("resume mailing: %s", unexpectedResponse(got.status, got.body))
	}
	return nil
}
