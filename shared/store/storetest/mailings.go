package storetest

import (
	"crypto/sha256"
	"fmt"
	"iter"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/store/mailing"
)

// NewMailing returns a valid mailing of the company, ready to ingest, with the column "cidade". change may be nil.
func NewMailing(company uuid.UUID, change func(*mailing.NewMailing)) mailing.NewMailing {
	id := uuid.Must(uuid.NewV7())
	html := "<p>Olá {{nome}}, de {{cidade}}.</p>"
	file, request, body := sha256.Sum256([]byte("file of "+id.String())), sha256.Sum256(id[:]), sha256.Sum256([]byte(html))
	m := mailing.NewMailing{
		ID: id, CompanyID: company, RequestID: "req-" + id.String(),
		Filename: id.String() + ".csv", StorageURL: "file:///mailings/" + id.String(),
		FileSHA256: file[:], RequestSHA256: request[:],
		Subject: "Oferta para {{nome}}", HTML: html, HTMLSHA256: body[:], CheckerVersion: int(htmlcheck.Version),
		Fields: []string{"cidade"}, EmailColumn: "e-mail", Sender: "Acme <billing@acme.example>",
		Answer: func(n mailing.Counts) ([]byte, error) {
			return fmt.Appendf(nil, `{"mailingId":%q,"accepted":%d}`, id, n.Accepted), nil
		},
	}
	if change != nil {
		change(&m)
	}
	return m
}

// Lines returns the lines 2 to n+1 of a file: entries user2@example.com and so on.
func Lines(n int) iter.Seq2[mailing.Line, error] {
	return func(yield func(mailing.Line, error) bool) {
		for line := 2; line < n+2; line++ {
			if !yield(mailing.Line{Entry: NewEntry(line)}, nil) {
				return
			}
		}
	}
}

// NewEntry returns a valid entry of the line. Later calls return greater ids.
func NewEntry(line int) *mailing.NewEntry {
	return &mailing.NewEntry{
		ID: uuid.Must(uuid.NewV7()), Line: line, Email: fmt.Sprintf("user%d@example.com", line), Token: fmt.Sprintf("token-%d", line),
		Fields: []string{"Recife"}, Nome: "Ana", ExternalID: fmt.Sprintf("CUST-%d", line),
	}
}

// Mailing ingests a mailing of the company with n entries and returns its id. change
// may be nil.
func (d Database) Mailing(tb testing.TB, company uuid.UUID, n int, change func(*mailing.NewMailing)) uuid.UUID {
	tb.Helper()
	m := NewMailing(company, change)
	if _, _, err := d.Store.IngestMailing(tb.Context(), m, Lines(n)); err != nil {
		tb.Fatalf("ingest mailing: %v", err)
	}
	return m.ID
}

// MailingEmail inserts the email of a mailing's first entry, as the expander does, and returns its id.
func (d Database) MailingEmail(tb testing.TB, mailingID uuid.UUID) uuid.UUID {
	tb.Helper()
	id := Ask[uuid.UUID](tb, d, `SELECT first_entry FROM mailings WHERE id = $1`, mailingID)
	d.Run(tb, `INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, priority, expires_at)
		SELECT $1, company_id, id, 'r', jsonb_build_object('htmlRef', 'mailing:' || mailing_id), 'a@acme.example', '<p>', '', 1, 9, 'infinity'
		FROM dispatch_lanes WHERE mailing_id = $2`, id, mailingID)
	return id
}
