package e2e_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"slices"
	"testing"

	"email-gateway/scripts/sessim"
)

const (
	pdfHead = "%PDF-1.7\n1 0 obj <</Type /Catalog>> endobj\n"
	nfeXML  = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<nfeProc versao=\"4.00\"><NFe/></nfeProc>\n"
)

// pdfOf returns a PDF with every byte value in it.
func pdfOf(size int) []byte {
	content := make([]byte, size)
	random := mathrand.NewChaCha8([32]byte{byte(size)})
	_, _ = random.Read(content) // never fails
	copy(content, pdfHead)
	return content
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// uploadFile stores a file and returns its id.
func (s *system) uploadFile(content []byte) string {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.api.addr+"/v1/files", bytes.NewReader(content))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.key)
	response, err := httpClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	var made struct{ ID string }
	if err != nil || json.Unmarshal(text, &made) != nil || made.ID == "" {
		s.t.Fatalf("upload: %d %s, %v", response.StatusCode, text, err)
	}
	return made.ID
}

// receivedAttachments returns the attachments of an email as they arrived.
func receivedAttachments(s *system, id string) []sessim.Attachment {
	s.t.Helper()
	mails := s.ses.Inbox()
	i := slices.IndexFunc(mails, func(m simMail) bool { return m.OutboxID == id })
	if i < 0 {
		s.t.Fatal("the mail is not in the inbox")
	}
	return mails[i].Attachments
}

// Files arrive unchanged, whether they were stored before or are in the request.
func TestAttachments(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"STORAGE_URL": "file://" + t.TempDir()})
	pdf, large := pdfOf(300<<10), pdfOf(3<<20)
	fileID := s.uploadFile(pdf)
	id := s.send("ana@cliente.example", func(b map[string]any) {
		b["html"] = `<p>Nota</p><img src="cid:logo">`
		b["attachments"] = []map[string]any{
			{"filename": "Fatura março.pdf", "contentType": "application/pdf", "fileId": fileID},
			{"filename": "nfe.xml", "contentType": "application/xml", "content": base64.StdEncoding.EncodeToString([]byte(nfeXML))},
			{"filename": "large.pdf", "contentType": "application/pdf", "content": base64.StdEncoding.EncodeToString(large)},
			{"filename": "logo.bin", "contentType": "application/octet-stream", "contentId": "logo", "content": base64.StdEncoding.EncodeToString([]byte("logo"))},
		}
	})
	if got := s.await(id, "SENT"); got.Attempts != 1 {
		t.Errorf("%d attempts", got.Attempts)
	}
	want := []sessim.Attachment{
		{FileName: "Fatura março.pdf", ContentType: "application/pdf", Disposition: "ATTACHMENT", TransferEncoding: "BASE64", Size: len(pdf), SHA256: sumOf(pdf)},
		{FileName: "nfe.xml", ContentType: "application/xml", Disposition: "ATTACHMENT", TransferEncoding: "BASE64", Size: len(nfeXML), SHA256: sumOf([]byte(nfeXML))},
		{FileName: "large.pdf", ContentType: "application/pdf", Disposition: "ATTACHMENT", TransferEncoding: "BASE64", Size: len(large), SHA256: sumOf(large)},
		{FileName: "logo.bin", ContentType: "application/octet-stream", ContentID: "logo", Disposition: "INLINE", TransferEncoding: "BASE64", Size: 4, SHA256: sumOf([]byte("logo"))},
	}
	if got := receivedAttachments(s, id); !slices.Equal(got, want) {
		t.Errorf("arrived:\n%+v\nwant\n%+v", got, want)
	}
}

// While the worker cannot reach the storage, or has another one, emails with attachments wait without spending a try, and others
// are sent.
func TestAttachments_StorageDownWhileSending(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]map[string]string{
		"unreachable": {
			"STORAGE_URL":       "s3://email-gateway?endpoint=http://127.0.0.1:1&region=us-east-1&s3ForcePathStyle=true",
			"AWS_ACCESS_KEY_ID": "gateway", "AWS_SECRET_ACCESS_KEY": "gateway-secret",
		},
		"not mounted": {"STORAGE_URL": "file://" + t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sendsAfterOutage(t, env)
		})
	}
}

// sendsAfterOutage accepts emails while the worker has the variables env, and awaits them after a restart without.
func sendsAfterOutage(t *testing.T, env map[string]string) {
	t.Helper()
	s := startSystem(t, map[string]string{"STORAGE_URL": "file://" + t.TempDir()})
	s.restartWorker(env)
	fileID := s.uploadFile(pdfOf(1000))
	var ids []string
	for i := range 30 {
		ids = append(ids, s.send(fmt.Sprintf("ana%d@cliente.example", i), func(b map[string]any) {
			b["attachments"] = []map[string]any{{"filename": "a.pdf", "contentType": "application/pdf", "fileId": fileID}}
		}))
	}
	s.await(s.send("plain@cliente.example", nil), "SENT")
	s.restartWorker(nil)
	for _, id := range ids {
		if got := s.await(id, "SENT"); got.Attempts != 1 {
			t.Errorf("%d attempts: the outage of the storage has spent tries", got.Attempts)
		}
		if got := receivedAttachments(s, id); len(got) != 1 || got[0].SHA256 != sumOf(pdfOf(1000)) {
			t.Errorf("arrived: %+v", got)
		}
	}
}

// A PDF and an XML also arrive unchanged at an emulator of SES that this project did not write: aws-ses-v2-local.
func TestAttachments_ForeignEmulator(t *testing.T) {
	t.Parallel()
	emulator := os.Getenv("SESV2_URL")
	if emulator == "" {
		t.Fatal("SESV2_URL is not set: run the tests through ./scripts/test.sh")
	}
	s := startSystem(t, map[string]string{"STORAGE_URL": "file://" + t.TempDir(), "SES_ENDPOINT": emulator})
	pdf, subject := pdfOf(300<<10), "Anexos "+rand.Text()
	id := s.send("ana@cliente.example", func(b map[string]any) {
		b["subject"] = subject
		b["attachments"] = []map[string]any{
			{"filename": "fatura.pdf", "contentType": "application/pdf", "fileId": s.uploadFile(pdf)},
			{"filename": "nfe.xml", "contentType": "application/xml", "content": base64.StdEncoding.EncodeToString([]byte(nfeXML))},
		}
	})
	s.await(id, "SENT")
	response, err := http.Get(emulator + "/store")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var store struct {
		Emails []struct {
			Subject     string
			Attachments []struct {
				Filename, ContentType, ContentDisposition string
				Content                                   []byte
			}
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&store); err != nil {
		t.Fatal(err)
	}
	for _, mail := range store.Emails {
		if mail.Subject != subject {
			continue
		}
		if len(mail.Attachments) != 2 || sumOf(mail.Attachments[0].Content) != sumOf(pdf) || sumOf(mail.Attachments[1].Content) != sumOf([]byte(nfeXML)) ||
			mail.Attachments[0].Filename != "fatura.pdf" || mail.Attachments[1].ContentType != "application/xml" {
			t.Errorf("the emulator received %d attachments, not the PDF and the XML", len(mail.Attachments))
		}
		return
	}
	t.Error("the emulator has not received the email")
}

// Every email of a mailing, and its test, has the files of the mailing.
func TestAttachments_Mailing(t *testing.T) {
	t.Parallel()
	s := startSystem(t, bulk(t, brokerURL(t)))
	pdf := pdfOf(200 << 10)
	files, err := json.Marshal([]map[string]any{{"filename": "regulamento.pdf", "contentType": "application/pdf", "fileId": s.uploadFile(pdf)}})
	if err != nil {
		t.Fatal(err)
	}
	sheet := []byte("email,nome,cidade\nana@cliente.example,Ana,Belém\nbia@cliente.example,Bia,Natal\n")
	status, answer := s.upload("refused.csv", sheet, map[string]string{"attachments": `[{"filename": "a.exe", "contentType": "application/pdf", "fileId": "x"}]`})
	if status != http.StatusUnprocessableEntity || !bytes.Contains(answer, []byte("attachments[0].filename")) {
		t.Errorf("%d %s", status, answer)
	}
	status, answer = s.upload("clientes.csv", sheet, map[string]string{"attachments": string(files), "test": "eu@acme.example"})
	var accepted mailingView
	if err := json.Unmarshal(answer, &accepted); err != nil || status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	s.awaitMailing(accepted.MailingID, "COMPLETED")
	eventually(t, func() error {
		if n := len(s.ses.Inbox()); n != 3 {
			return fmt.Errorf("%d emails arrived, want 3", n)
		}
		return nil
	})
	for _, mail := range s.ses.Inbox() {
		if len(mail.Attachments) != 1 || mail.Attachments[0].SHA256 != sumOf(pdf) || mail.Attachments[0].FileName != "regulamento.pdf" {
			t.Errorf("%v has %+v", mail.To, mail.Attachments)
		}
	}
}
