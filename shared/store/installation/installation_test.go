package installation_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store/file"
	"email-gateway/shared/store/installation"
	"email-gateway/shared/store/storetest"
)

func TestInstallation(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s := installation.New(d.Store.DB())
	id, marked, err := s.Installation(t.Context())
	if err != nil || id == uuid.Nil || marked {
		t.Fatalf("%s, marked: %v, %v", id, marked, err)
	}
	for range 2 {
		if err := s.RecordMarked(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	again, marked, err := s.Installation(t.Context())
	if err != nil || again != id || !marked {
		t.Errorf("%s, marked: %v, %v; want %s", again, marked, err, id)
	}
	if own, err := s.ID(t.Context()); err != nil || own != id {
		t.Errorf("%s, %v; want %s", own, err, id)
	}
	away, leave := context.WithCancel(t.Context())
	leave()
	if own, err := s.ID(away); err != nil || own != id { // as while Postgres is away
		t.Errorf("again: %s, %v; want %s", own, err, id)
	}
}

// The api marks a storage that has a file of its installation, and an empty one while there is no file.
func TestMayClaim(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s := installation.New(d.Store.DB())
	company := d.Company(t)
	claims := func(name, want string, keys ...string) {
		t.Helper()
		got, err := s.MayClaim(t.Context(), keys)
		if err != nil || want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	foreign := "files/" + company.String() + "/" + uuid.NewString()
	claims("new installation, empty storage", "")
	claims("new installation, object with another name", "", "ping.txt")
	claims("new installation, storage with files", "lists none of them", foreign)

	mailing := d.Mailing(t, company, 1, nil)
	d.Run(t, `UPDATE mailings SET file_bytes = 100`)
	csv := "mailings/" + company.String() + "/" + mailing.String() + ".csv"
	claims("mailing, empty storage", "contains no file")
	claims("mailing, another storage", "lists none of them", foreign)
	claims("mailing and its file", "", foreign, csv)
	d.Run(t, `UPDATE mailings SET file_deleted_at = now()`)
	claims("deleted file, empty storage", "")
	claims("deleted file that is there", "lists none of them", csv)

	f, err := d.Store.AddFile(t.Context(), file.File{
		ID: uuid.Must(uuid.NewV7()), CompanyID: company, SHA256: make([]byte, 32), Size: 10, Bytes: 100, MediaType: "text/plain",
	})
	if err != nil {
		t.Fatal(err)
	}
	claims("stored file, empty storage", "contains no file")
	claims("stored file that is there", "", foreign, file.Key(company, f.ID))

	d.Run(t, `DELETE FROM stored_files`)
	claims("no file, empty storage", "")
	if err := s.RecordMarked(t.Context()); err != nil {
		t.Fatal(err)
	}
	claims("no file, an empty storage beside a marked one", "has been marked before")
}
