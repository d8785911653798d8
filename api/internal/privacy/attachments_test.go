package privacy_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/privacy"
	"email-gateway/shared/blob"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// Erasing a person deletes the attachments of the person's emails, and the files that no other email attaches.
func TestErase_Attachments(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	bucket, archive := newArchive(t, d.Store)
	company := d.Company(t)
	add := func(content byte) file.File {
		id := uuid.Must(uuid.NewV7())
		if err := bucket.Put(t.Context(), file.Key(company, id), strings.NewReader("encrypted")); err != nil {
			t.Fatal(err)
		}
		f, err := d.Store.AddFile(t.Context(), file.File{ID: id, CompanyID: company, SHA256: bytes.Repeat([]byte{content}, 32), Size: 1, Bytes: 9, MediaType: "text/plain"})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	own, shared := add(1), add(2)
	to := func(address string, files ...file.File) uuid.UUID {
		return d.Accept(t, company, func(e *outbox.NewEmail) {
			e.Job.To, e.Job.Recipient.Email, e.Job.Recipient.ExternalID = address, address, address
			for _, f := range files {
				e.Attachments = append(e.Attachments, file.Attachment{FileID: f.ID, Filename: "holerite de Maria.pdf", ContentType: "text/plain", Disposition: file.Attached})
				e.Attachments[len(e.Attachments)-1].Filename += f.ID.String()
			}
		})
	}
	hers, his := to("maria@cliente.example", own, shared), to("joao@cliente.example", shared)

	exported, err := archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: company, Address: "maria@cliente.example"})
	if err != nil || len(exported.Attachments) != 2 || !strings.Contains(string(exported.Attachments[0]), "holerite de Maria") {
		t.Errorf("exported %s, %v", exported.Attachments, err)
	}
	done, err := archive.Erase(t.Context(), privacy.Order{
		Query: privacy.Query{CompanyID: company, Address: "maria@cliente.example"}, By: storetest.Operator(), Timeout: time.Minute,
	})
	if err != nil || !done.Complete() {
		t.Fatalf("%+v, %v", done, err)
	}
	if done.Files != 1 || done.Receipt.Tables["attachments"] != 2 || done.Receipt.Tables["stored files"] != 1 {
		t.Errorf("receipt: %d files, %v", done.Files, done.Receipt.Tables)
	}
	files := file.New(d.Store.DB())
	if left, err := files.Attachments(t.Context(), company, hers); err != nil || len(left) != 0 {
		t.Errorf("left of hers: %v, %v", left, err)
	}
	if left, err := files.Attachments(t.Context(), company, his); err != nil || len(left) != 1 {
		t.Errorf("left of his: %v, %v", left, err)
	}
	if _, err := bucket.Get(t.Context(), file.Key(company, own.ID)); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("her file: %v", err)
	}
	stored, err := bucket.Get(t.Context(), file.Key(company, shared.ID))
	if err != nil {
		t.Fatalf("the file that his email attaches: %v", err)
	}
	_ = stored.Close()
}
