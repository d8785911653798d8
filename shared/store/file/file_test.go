package file_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
)

// storedFile returns a file that is not stored yet; content is repeated in its hash.
func storedFile(company uuid.UUID, content byte) file.File {
	return file.File{ID: uuid.Must(uuid.NewV7()), CompanyID: company, SHA256: bytes.Repeat([]byte{content}, 32), Size: 10, Bytes: 100, MediaType: "text/plain"}
}

// add stores a row about a file.
func add(tb testing.TB, d storetest.Database, company uuid.UUID, content byte) file.File {
	tb.Helper()
	f, err := d.Store.AddFile(tb.Context(), storedFile(company, content))
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func attaching(files ...file.File) func(*outbox.NewEmail) {
	return func(e *outbox.NewEmail) {
		for _, f := range files {
			e.Attachments = append(e.Attachments, file.Attachment{FileID: f.ID, Filename: f.ID.String(), ContentType: "text/plain", Disposition: file.Attached})
		}
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	files := file.New(d.Store.DB())
	a, b := add(t, d, company, 1), add(t, d, company, 2)
	if again := add(t, d, company, 1); again.ID != a.ID {
		t.Error("the same content was stored as another file")
	}
	if foreign := add(t, d, other, 1); foreign.ID == a.ID {
		t.Error("two companies have the same file id")
	}
	id := d.Accept(t, company, attaching(b, a))
	got, err := files.Attachments(t.Context(), company, id)
	if err != nil || len(got) != 2 || got[0].FileID != b.ID || got[1].FileID != a.ID {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := files.Attachments(t.Context(), other, id); err != nil || len(got) != 0 {
		t.Errorf("another company gets %v, %v", got, err)
	}
	one := d.Accept(t, company, attaching(a))
	of, err := files.AttachmentsOf(t.Context(), company, []uuid.UUID{id, one, uuid.New()})
	if err != nil || len(of) != 2 || len(of[id]) != 2 || of[id][0].FileID != b.ID || len(of[one]) != 1 || of[one][0].Size != 10 {
		t.Errorf("of many: %v, %v", of, err)
	}
	if of, err := files.AttachmentsOf(t.Context(), other, []uuid.UUID{id}); err != nil || len(of) != 0 {
		t.Errorf("another company gets %v, %v", of, err)
	}
	d.Run(t, `DELETE FROM email_outbox WHERE id = $1`, one)
	err = d.Store.NewAccepter().Accept(t.Context(), storetest.NewEmail(other, attaching(a)))
	if gone, ok := errors.AsType[*file.GoneError](err); !ok || len(gone.IDs) != 1 || gone.IDs[0] != a.ID {
		t.Errorf("another company attaches the file: %v", err)
	}
	// Referenced files stay, and unreferenced ones are deleted after their time.
	unused := add(t, d, company, 3)
	d.Run(t, `UPDATE stored_files SET used_at = now() - interval '25 h'`)
	if _, err := files.UseFile(t.Context(), company, bytes.Repeat([]byte{3}, 32)); err != nil {
		t.Fatal(err)
	}
	gone, _, err := files.DeleteUnused(t.Context(), 24*time.Hour, file.FromOldest(), 10)
	if left := storetest.Ask[int](t, d, `SELECT count(*) FROM stored_files WHERE company_id = $1`, other); err != nil || gone != 1 || left != 0 {
		t.Errorf("deleted %d, %v; want the other company's file alone", gone, err)
	}
	// The attachments are deleted with the body, by any statement that erases it.
	d.Run(t, `UPDATE email_outbox SET status = 'CANCELLED', processed_at = now(), body_erased_at = now() WHERE id = $1`, id)
	if got, err := files.Attachments(t.Context(), company, id); err != nil || len(got) != 0 {
		t.Errorf("after the body: %v, %v", got, err)
	}
	second := d.Accept(t, company, attaching(a))
	d.Run(t, `DELETE FROM email_outbox WHERE id = $1`, second)
	if got, err := files.Attachments(t.Context(), company, second); err != nil || len(got) != 0 {
		t.Errorf("after the row: %v, %v", got, err)
	}
	if gone, _, err := files.DeleteUnused(t.Context(), 24*time.Hour, file.FromOldest(), 10); err != nil || gone != 2 {
		t.Errorf("deleted %v, %v", gone, err)
	}
	if gone, err := files.DeleteErased(t.Context(), company, []uuid.UUID{unused.ID}); err != nil || len(gone) != 1 {
		t.Errorf("deleted %v, %v", gone, err)
	}
}

// A page of files that are attached does not end the deletion: the next page begins behind it.
func TestFiles_UnusedPages(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	files := file.New(d.Store.DB())
	d.Accept(t, company, attaching(add(t, d, company, 1), add(t, d, company, 2)))
	add(t, d, company, 3)
	add(t, d, company, 4)
	d.Run(t, `UPDATE stored_files SET used_at = now() - interval '25 h' - get_byte(sha256, 0) * interval '-1 s'`)
	position := file.FromOldest()
	for page, want := range []int{0, 2, 0} {
		gone, next, err := files.DeleteUnused(t.Context(), 24*time.Hour, position, 2)
		if err != nil || gone != want || (next == file.FromOldest()) != (page == 2) {
			t.Errorf("page %d: deleted %d, want %d; the next page begins at %v (%v)", page, gone, want, next, err)
		}
		position = next
	}
}

// A worker records that the object of a file is missing, and the api that it is there again.
func TestFiles_Missing(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	files := file.New(d.Store.DB())
	a, b := add(t, d, company, 1), add(t, d, company, 2)
	id := d.Accept(t, company, attaching(a, b))
	expect := func(missing bool) {
		t.Helper()
		known, err := files.UseFile(t.Context(), company, a.SHA256)
		if err != nil || known.ID != a.ID || known.Missing != missing {
			t.Errorf("%+v, %v; want missing %v", known, err, missing)
		}
		listed, err := files.Attachments(t.Context(), company, id)
		if err != nil || len(listed) != 2 {
			t.Fatal(listed, err)
		}
		since, is := listed[0].MissingFor()
		if is != missing || missing && (since < time.Minute || since > time.Hour) {
			t.Errorf("missing %v, for %v", is, since)
		}
		if _, is := listed[1].MissingFor(); is {
			t.Error("the other file is missing too")
		}
	}
	expect(false)
	if err := files.MarkMissing(t.Context(), company, a.ID); err != nil {
		t.Fatal(err)
	}
	d.Run(t, `UPDATE stored_files SET missing_since = missing_since - interval '1 min' WHERE missing_since IS NOT NULL`)
	if err := errors.Join(files.MarkMissing(t.Context(), company, a.ID), files.MarkMissing(t.Context(), d.Company(t), b.ID)); err != nil {
		t.Fatal(err)
	}
	expect(true)
	if err := files.ClearMissing(t.Context(), company, a.ID); err != nil {
		t.Fatal(err)
	}
	expect(false)
	if err := files.ClearMissing(t.Context(), company, uuid.New()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

// Emails that attach the same content do not wait for each other: finding the file locks it once an hour at most.
func TestFiles_UseWithoutLock(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	files := file.New(d.Store.DB())
	f := add(t, d, company, 1)
	if err := d.Store.DB().InTx(t.Context(), func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(t.Context(), `SELECT FROM stored_files FOR UPDATE`); err != nil {
			return err
		}
		_, err := files.UseFile(t.Context(), company, f.SHA256)
		return err
	}); err != nil {
		t.Error(err)
	}
	for _, used := range []string{"now() - interval '61 min'", "'-infinity'"} {
		d.Run(t, `UPDATE stored_files SET used_at = `+used)
		if _, err := files.UseFile(t.Context(), company, f.SHA256); err != nil {
			t.Error(err)
		}
		if gone, _, err := files.DeleteUnused(t.Context(), time.Hour, file.FromOldest(), 10); err != nil || gone != 0 {
			t.Errorf("used before %s: deleted %v, %v", used, gone, err)
		}
	}
}

// Accept with an idempotency key and with an aggregate links the files too.
func TestFiles_Accept(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	f := add(t, d, company, 1)
	for name, change := range map[string]func(*outbox.NewEmail){
		"key": func(e *outbox.NewEmail) {
			e.Idempotency = &idempotency.Key{Route: "r", Key: "k", BodySHA256: make([]byte, 32), Status: 202, Answer: []byte("{}"), Keep: time.Hour}
		},
		"aggregate": func(e *outbox.NewEmail) { e.Aggregate = &outbox.Aggregate{Type: "t", ID: "1", EventType: "e"} },
		"scheduled": func(e *outbox.NewEmail) { e.SendAt = time.Now().Add(time.Hour) },
	} {
		e := storetest.NewEmail(company, func(e *outbox.NewEmail) { attaching(f)(e); change(e) })
		if err := d.Store.NewAccepter().Accept(t.Context(), e); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		loaded, err := d.Store.NewLoader().Load(t.Context(), e.ID)
		if err != nil || loaded.Attachments != 1 {
			t.Errorf("%s: %+v, %v", name, loaded, err)
		}
		if e.Idempotency == nil {
			continue
		}
		again := storetest.NewEmail(company, func(n *outbox.NewEmail) { attaching(f)(n); n.Idempotency = e.Idempotency })
		if _, used := errors.AsType[*idempotency.UsedError](d.Store.NewAccepter().Accept(t.Context(), again)); !used {
			t.Errorf("%s: the key was not used", name)
		}
	}
}

// A cleaner and a transaction that attaches the file run at the same time: the first lock wins, and the other
// transaction finds the file deleted or attached.
func TestFiles_CleanerAndAttachment(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	files := file.New(d.Store.DB())
	f := add(t, d, company, 1)
	d.Run(t, `UPDATE stored_files SET used_at = '-infinity'`)
	own := []file.Owned{{Owner: uuid.Must(uuid.NewV7()), Attachments: []file.Attachment{
		{FileID: f.ID, Filename: "a.pdf", ContentType: "text/plain", Disposition: file.Attached},
	}}}
	inTx := func(do func(ctx context.Context, tx *sqlx.Tx)) {
		if err := d.Store.DB().InTx(t.Context(), func(tx *sqlx.Tx) error {
			do(t.Context(), tx)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	clean := func() int {
		gone, _, err := files.DeleteUnused(t.Context(), time.Hour, file.FromOldest(), 10)
		if err != nil {
			t.Error(err)
		}
		return gone
	}
	inTx(func(ctx context.Context, tx *sqlx.Tx) {
		if err := file.Hold(ctx, tx, company, own...); err != nil {
			t.Fatal(err)
		}
		if n := clean(); n != 0 {
			t.Errorf("the cleaner deleted %d files that a transaction has locked", n)
		}
		if err := file.Link(ctx, tx, company, own...); err != nil {
			t.Fatal(err)
		}
	})
	if n := clean(); n != 0 {
		t.Errorf("%d attached files deleted", n)
	}
	d.Run(t, `DELETE FROM attachments`)
	// An accepted email waits for a cleaner that has locked the file, and then does not find it.
	accepted := make(chan error, 1)
	inTx(func(ctx context.Context, tx *sqlx.Tx) {
		if _, err := tx.ExecContext(ctx, `DELETE FROM stored_files`); err != nil {
			t.Fatal(err)
		}
		go func() {
			accepted <- d.Store.NewAccepter().Accept(context.WithoutCancel(ctx), storetest.NewEmail(company, attaching(f)))
		}()
		// A company's plain emails do not wait behind it.
		d.Accept(t, company, nil)
		d.Accept(t, d.Company(t), nil)
	})
	err := <-accepted
	if _, gone := errors.AsType[*file.GoneError](err); !gone {
		t.Errorf("accepted with a deleted file: %v", err)
	}
}

// The attachments of a mailing are deleted with its content, whether it has html, text or both. A mailing that sends
// nothing keeps none.
func TestFiles_OfMailing(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	f := add(t, d, company, 1)
	for name, change := range map[string]func(*mailing.NewMailing){
		"html": nil,
		"text": func(m *mailing.NewMailing) { m.HTML, m.Text = "", "Olá" },
		"both": func(m *mailing.NewMailing) { m.Text = "Olá" },
	} {
		for _, rows := range []int{0, 2} {
			id := d.Mailing(t, company, rows, func(m *mailing.NewMailing) {
				m.Attachments = []file.Attachment{{FileID: f.ID, Filename: "a.pdf", ContentType: "application/pdf", Disposition: "attachment"}}
				if change != nil {
					change(m)
				}
			})
			of := func() int {
				t.Helper()
				return storetest.Ask[int](t, d, `SELECT count(*) FROM attachments WHERE owner_id = $1`, id)
			}
			if n := of(); n != min(rows, 1) {
				t.Errorf("%s, %d rows: %d attachments", name, rows, n)
			}
			d.Run(t, `UPDATE mailings SET status = 'CANCELLED', entries_deleted_at = now(), updated_at = now() - interval '2 days' WHERE id = $1`, id)
			if _, err := retention.New(d.Store.DB()).EraseTemplates(t.Context(), 24*time.Hour, 10); err != nil {
				t.Fatal(err)
			}
			if n := of(); n != 0 {
				t.Errorf("%s, %d rows, content erased: %d attachments", name, rows, n)
			}
		}
	}
}
