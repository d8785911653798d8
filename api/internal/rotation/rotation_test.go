package rotation_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/mailing"
	"email-gateway/api/internal/rotation"
	"email-gateway/shared/blob"
	"email-gateway/shared/email"
	"email-gateway/shared/keyring"
	"email-gateway/shared/store/encryption"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/webhook"
)

const cpf = "52998224725"

func entry(id string, b byte) string {
	return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))
}

func ring(t *testing.T, text string) keyring.Ring {
	t.Helper()
	r, err := keyring.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// world has values encrypted with the key k1 in every place: 700 recipients (two batches), an email, an entry and a
// file.
type world struct {
	storetest.Database
	bucket  *blob.Bucket
	company uuid.UUID
	mailing uuid.UUID
}

func newWorld(t *testing.T, old keyring.Ring) *world {
	t.Helper()
	bucket, err := blob.Open(t.Context(), "file://"+t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	d := storetest.New(t)
	w := &world{Database: d, bucket: bucket, company: d.Company(t)}
	seal := func() []byte {
		encrypted, err := old.Seal(w.company, cpf)
		if err != nil {
			t.Fatal(err)
		}
		return encrypted
	}
	w.Accept(t, w.company, func(e *outbox.NewEmail) { e.CPFCNPJ = seal() })
	intakes := recipient.NewRecipients{CompanyID: w.company, RequestID: "r", CreatedAt: time.Now()}
	var ids []uuid.UUID
	for range 700 {
		id := uuid.Must(uuid.NewV7())
		ids = append(ids, id)
		intakes.Recipients = append(intakes.Recipients, recipient.NewRecipient{
			OutboxID: id, CPFCNPJ: seal(), Recipient: recipient.Recipient{ID: id, CPFCNPJHash: email.HashTaxID(cpf, nil), Email: "maria@cliente.example"},
		})
	}
	if err := d.Store.AcceptRecipients(t.Context(), intakes); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Store.UpsertRecipients(t.Context(), ids)...); err != nil {
		t.Fatal(err)
	}
	m := storetest.NewMailing(w.company, nil)
	w.mailing = m.ID
	_, _, err = d.Store.IngestMailing(t.Context(), m, func(yield func(mailingstore.Line, error) bool) {
		e := storetest.NewEntry(2)
		e.CPFCNPJ, e.CPFCNPJHash = seal(), email.HashTaxID(cpf, nil)
		yield(mailingstore.Line{Entry: e}, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := old.EncryptReader(strings.NewReader(file), mailing.FileBinding(w.company, w.mailing))
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.Put(t.Context(), mailing.FileKey(w.company, w.mailing), encrypted); err != nil {
		t.Fatal(err)
	}
	return w
}

var file = "e-mail;cpf\n" + strings.Repeat("maria@cliente.example;529.982.247-25\n", 5000)

func (w *world) rotation(r keyring.Ring) *rotation.Rotation {
	return &rotation.Rotation{Store: w.Store, Bucket: w.bucket, Ring: r, Webhooks: webhook.New(w.Store.DB())}
}

func (w *world) count(t *testing.T, r keyring.Ring) rotation.KeyUsage {
	t.Helper()
	usage, err := w.rotation(r).Count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return usage
}

// After repeated interruptions the rotation completes, and the old key is removable.
func TestRun_Interrupted(t *testing.T) {
	t.Parallel()
	old, both, fresh := ring(t, entry("k1", 1)), ring(t, entry("k2", 2)+","+entry("k1", 1)), ring(t, entry("k2", 2))
	w := newWorld(t, old)
	const all = 700 + 1 + 1 + 1
	if n := w.count(t, both).Of("k1"); n != all {
		t.Fatalf("%d values, want %d", n, all)
	}
	total, rounds := 0, 0
	for ; ; rounds++ {
		r := w.rotation(both)
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		r.Progress = func(string, int, int) {
			if n++; n > rounds+1 {
				cancel()
			}
		}
		changed, err := r.Run(ctx)
		cancel()
		if total += changed; err == nil {
			break
		}
		if rounds > 20 {
			t.Fatal(err)
		}
	}
	if total != all || rounds < 3 {
		t.Errorf("%d values encrypted again in %d rounds, want %d", total, rounds, all)
	}
	usage := w.count(t, both)
	if usage.Of("k1") != 0 || usage.Of("k2") != all {
		t.Errorf("%v", usage)
	}
	if n, err := w.rotation(fresh).Run(t.Context()); n != 0 || err != nil {
		t.Errorf("a repeated rotation encrypted %d values, want 0 (%v)", n, err)
	}
	for _, table := range encryption.EncryptedTables() {
		page, err := w.Store.EncryptedValues(t.Context(), table, uuid.Nil)
		if err != nil || len(page.Values) == 0 {
			t.Fatalf("%s: %v", table, err)
		}
		for _, v := range page.Values {
			if bare, err := fresh.Open(w.company, v.Encrypted); bare != cpf || err != nil {
				t.Fatalf("%s: %q, %v", table, bare, err)
			}
		}
	}
	stored, err := w.bucket.Get(t.Context(), mailing.FileKey(w.company, w.mailing))
	if err != nil {
		t.Fatal(err)
	}
	defer stored.Close()
	plain, err := fresh.DecryptReader(stored, mailing.FileBinding(w.company, w.mailing))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(plain); string(text) != file || err != nil {
		t.Errorf("%d bytes of the file, %v", len(text), err)
	}
}

// deletedMeanwhile calls after when a file was stored.
type deletedMeanwhile struct {
	*blob.Bucket
	after func()
}

func (b deletedMeanwhile) Put(ctx context.Context, key string, r io.Reader) error {
	err := b.Bucket.Put(ctx, key, r)
	b.after()
	return err
}

// A file that retention deletes while it is re-encrypted does not remain, also if the rotation is interrupted then.
func TestRun_FileDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ring(t, entry("k1", 1)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := w.rotation(ring(t, entry("k2", 2)+","+entry("k1", 1)))
	r.Bucket = deletedMeanwhile{w.bucket, func() {
		if _, err := w.SQL.ExecContext(t.Context(), `UPDATE mailings SET file_deleted_at = now()`); err != nil {
			t.Error(err)
		}
		cancel()
	}}
	if _, err := r.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want context.Canceled", err)
	}
	stored, err := w.bucket.Get(t.Context(), mailing.FileKey(w.company, w.mailing))
	if err == nil {
		_ = stored.Close()
	}
	if !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("Get of the deleted file = %v, want ErrNotFound", err)
	}
}

// Values encrypted with a missing key are reported and kept.
func TestCount_ForeignKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ring(t, entry("k1", 1)))
	fresh := ring(t, entry("k2", 2))
	if n, err := w.rotation(fresh).Run(t.Context()); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if usage := w.count(t, fresh); usage.Of("k1") != 703 || usage.Of("k2") != 0 {
		t.Errorf("%v", usage)
	}
	if _, err := w.rotation(ring(t, entry("k1", 9))).Run(t.Context()); err != nil {
		t.Errorf("a rotation without work returns %v", err)
	}
	if _, err := w.rotation(ring(t, entry("k2", 2)+","+entry("k1", 9))).Run(t.Context()); !errors.Is(err, keyring.ErrUndecryptable) {
		t.Errorf("with another key of the same id: %v", err)
	}
}

// Values that cannot be decrypted do not block the others.
func TestRun_Damaged(t *testing.T) {
	t.Parallel()
	old, both := ring(t, entry("k1", 1)), ring(t, entry("k2", 2)+","+entry("k1", 1))
	w := newWorld(t, old)
	for _, statement := range []string{
		`UPDATE mailing_entries SET cpf_cnpj_enc = set_byte(cpf_cnpj_enc, length(cpf_cnpj_enc) - 1, get_byte(cpf_cnpj_enc, length(cpf_cnpj_enc) - 1) # 1)`,
		`UPDATE recipients SET cpf_cnpj_enc = '\x00' WHERE id = (SELECT id FROM recipients ORDER BY id LIMIT 1)`,
	} {
		if _, err := w.SQL.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	n, err := w.rotation(both).Run(t.Context())
	if n != 701 || !errors.Is(err, keyring.ErrUndecryptable) || !strings.Contains(err.Error(), "skipped 2 values") || !strings.Contains(err.Error(), "mailingEntries ") {
		t.Errorf("%d, %v", n, err)
	}
	if usage, err := w.rotation(both).Count(t.Context()); !errors.Is(err, keyring.ErrUndecryptable) || usage.Of("k2") != 701 {
		t.Errorf("Count with a malformed value = %v, %v, want 701 of k2 and ErrUndecryptable", usage, err)
	}
}

// A row that changes between reading and writing is not overwritten.
func TestReencrypt_OnlyWhatWasRead(t *testing.T) {
	t.Parallel()
	old := ring(t, entry("k1", 1))
	w := newWorld(t, old)
	page, err := w.Store.EncryptedValues(t.Context(), encryption.EncryptedEmails, uuid.Nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.SQL.ExecContext(t.Context(), `UPDATE email_outbox SET cpf_cnpj_enc = NULL`); err != nil {
		t.Fatal(err)
	}
	n, err := w.Store.Reencrypt(t.Context(), encryption.EncryptedEmails, page.Values, make([][]byte, len(page.Values)))
	if n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
