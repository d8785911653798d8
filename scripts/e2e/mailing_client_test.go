package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"testing"
)

// mailingView is the api's representation of a mailing.
type mailingView struct {
	MailingID    string
	Status       string
	Total        int
	Accepted     int
	Invalid      int
	Duplicates   int
	Queued       int
	Sent         int
	Failed       int
	Suppressed   int
	Expired      int
	Cancelled    int
	Unknown      int
	ErrorMessage string
}

// templates are a mailing's templates, whose fields are the spreadsheet's columns.
var templates = map[string]string{
	"subject": "Olá, {{nome}}",
	"html":    `<p title="{{cidade}}">{{nome}}, seu código é {{token}}.</p><p><a href="{{unsubscribe_url}}">Sair</a></p>`,
	"text":    "{{nome}}: {{token}}",
}

// bulk returns the settings of a system that sends mailings.
func bulk(t *testing.T, rabbitmqURL string) map[string]string {
	t.Helper()
	return map[string]string{
		"RABBITMQ_URL": rabbitmqURL, "STORAGE_URL": "file://" + t.TempDir(), "MX_RESOLVER": "off",
		"PUBLIC_URL": "https://mail.acme.example", "UNSUBSCRIBE_KEY": base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"MAILING_RECOVERY_INTERVAL": "5s", "MAILING_STALE_AFTER": "10s", "WORKER_CONCURRENCY": "32",
	}
}

// upload posts a file with templates and returns the response.
func (s *system) upload(name string, file []byte, change map[string]string) (int, []byte) {
	s.t.Helper()
	status, answer, err := s.tryUpload(name, file, change)
	if err != nil {
		s.t.Fatalf("upload: %v", err)
	}
	return status, answer
}

func (s *system) tryUpload(name string, file []byte, change map[string]string) (int, []byte, error) {
	s.t.Helper()
	fields := maps.Clone(templates)
	maps.Copy(fields, change)
	reader, writer := io.Pipe()
	form := multipart.NewWriter(writer)
	go func() { _ = writer.CloseWithError(writeForm(form, name, file, fields)) }()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.api.addr+"/mailings", reader)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.key)
	request.Header.Set("Content-Type", form.FormDataContentType())
	response, err := httpClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

func writeForm(form *multipart.Writer, name string, file []byte, fields map[string]string) error {
	for field, value := range fields {
		if err := form.WriteField(field, value); err != nil {
			return err
		}
	}
	part, err := form.CreateFormFile("file", name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(part, bytes.NewReader(file)); err != nil {
		return err
	}
	return form.Close()
}

// mail uploads a spreadsheet, checks the counts of the response, and returns the mailing's id.
func (s *system) mail(name string, sheet spreadsheet, change map[string]string) string {
	s.t.Helper()
	status, answer := s.upload(name, sheet.file, change)
	var accepted mailingView
	if err := json.Unmarshal(answer, &accepted); err != nil || status != http.StatusAccepted {
		s.t.Fatalf("upload: %d %s", status, answer)
	}
	if accepted.Accepted != len(sheet.people) || accepted.Invalid != sheet.invalid || accepted.Duplicates != sheet.duplicates {
		s.t.Fatalf("%s, want %d accepted, %d invalid, %d duplicates", answer, len(sheet.people), sheet.invalid, sheet.duplicates)
	}
	return accepted.MailingID
}

func (s *system) mailing(id string) mailingView {
	s.t.Helper()
	status, answer := s.call(http.MethodGet, "/mailings/"+id, nil, nil)
	var view mailingView
	if err := json.Unmarshal(answer, &view); err != nil || status != http.StatusOK {
		s.t.Fatalf("get mailing: %d %s", status, answer)
	}
	return view
}

// awaitMailing waits until the mailing has the status.
func (s *system) awaitMailing(id string, status string) (last mailingView) {
	s.t.Helper()
	eventually(s.t, func() error {
		if last = s.mailing(id); last.Status != status {
			return fmt.Errorf("the mailing is %+v; %s", last, s.statusCounts())
		}
		return nil
	})
	return last
}

// deliveredOnce checks that SES accepted the email of each valid row exactly once, with the name unchanged.
func (s *system) deliveredOnce(sheet spreadsheet) {
	s.t.Helper()
	s.sentOnce(len(sheet.people))
	seen := make(map[string]bool, len(sheet.people))
	for _, mail := range s.ses.Inbox() {
		address := mail.To[0]
		name, known := sheet.people[address]
		if !known || seen[address] {
			s.t.Fatalf("mail to %s, which is known: %v, seen before: %v", address, known, seen[address])
		}
		seen[address] = true
		if mail.Subject != "Olá, "+name {
			s.t.Fatalf("the subject for %s is %q", address, mail.Subject)
		}
	}
	if len(seen) != len(sheet.people) {
		s.t.Errorf("%d addresses got mail, want %d", len(seen), len(sheet.people))
	}
}
