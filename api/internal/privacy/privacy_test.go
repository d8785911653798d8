package privacy_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/mailing"
	"email-gateway/api/internal/privacy"
	"email-gateway/shared/blob"
	"email-gateway/shared/email"
	"email-gateway/shared/keyring"
	"email-gateway/shared/store"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/feedback"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/person"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/suppression"
)

const (
	cpf     = "52998224725"
	address = "Maria.Sigilosa@cliente.example"
	name    = "Maria Sigilosa"
)

// maria lists everything that identifies her, in lower case.
var maria = []string{"maria.sigilosa@", "maria sigilosa", "c-maria", cpf, email.HashTaxID(cpf, nil), "assunto sigiloso", "corpo sigiloso"}

// world is a company with data about Maria in every table, about João in some, and another company that also has data
// about her.
type world struct {
	storetest.Database
	archive        privacy.Archive
	bucket         *blob.Bucket
	company, other uuid.UUID
	mailing        uuid.UUID
	pending, busy  uuid.UUID
	sent, copied   uuid.UUID
	token          uuid.UUID // busy's attempt
}

func newWorld(t *testing.T) *world {
	t.Helper()
	d := storetest.New(t)
	bucket, archive := newArchive(t, d.Store)
	w := &world{Database: d, bucket: bucket, archive: archive, company: d.Company(t), other: d.Company(t)}

	w.pending = w.toMaria(t, w.company)
	w.sent = w.toMaria(t, w.company)
	token := w.claim(t, w.sent)
	w.end(t, w.sent, token, email.Sent, false)
	if _, err := d.Store.RecordFeedback(t.Context(), w.bounce(token)); err != nil {
		t.Fatal(err)
	}
	failed := w.toMaria(t, w.company)
	w.end(t, failed, w.claim(t, failed), email.Failed, true)
	w.busy = w.toMaria(t, w.company)
	w.token = w.claim(t, w.busy)
	w.copied = d.Accept(t, w.company, func(e *outbox.NewEmail) {
		e.Job.CC, e.Job.BCC, e.Job.ReplyTo = []string{address, "rui@example.com"}, []string{address}, address
	})
	w.toMaria(t, w.other)

	// A stored recipient and pending updates.
	for range 2 {
		id := uuid.Must(uuid.NewV7())
		err := d.Store.AcceptRecipients(t.Context(), recipient.NewRecipients{
			CompanyID: w.company, RequestID: "req-1", CreatedAt: time.Now(), Recipients: []recipient.NewRecipient{{OutboxID: id, CPFCNPJ: w.seal(t, w.company), Recipient: recipient.Recipient{
				ID: recipient.ID(w.company, "", email.HashTaxID(cpf, nil), ""), CPFCNPJHash: email.HashTaxID(cpf, nil), Nome: name, Email: address,
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if w.mailing == uuid.Nil {
			if err := errors.Join(d.Store.UpsertRecipients(t.Context(), []uuid.UUID{id})...); err != nil {
				t.Fatal(err)
			}
		}
		w.mailing = uuid.Max // the second one waits
	}
	note := name + " called"
	if err := d.Store.Suppress(t.Context(), w.company, suppression.Suppression{Address: address, Reason: suppression.Complained, Note: &note}); err != nil {
		t.Fatal(err)
	}
	w.newMailing(t)
	return w
}

func newArchive(t *testing.T, s *store.Store) (*blob.Bucket, privacy.Archive) {
	t.Helper()
	ring, err := keyring.Parse("k1:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := blob.Open(t.Context(), "file://"+t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	return bucket, privacy.Archive{Store: s, People: person.New(s.DB()), Bucket: bucket, Ring: ring}
}

func (w *world) seal(t *testing.T, company uuid.UUID) []byte {
	t.Helper()
	encrypted, err := w.archive.Ring.Seal(company, cpf)
	if err != nil {
		t.Fatal(err)
	}
	return encrypted
}

func (w *world) toMaria(t *testing.T, company uuid.UUID) uuid.UUID {
	t.Helper()
	encrypted := w.seal(t, company)
	return w.Accept(t, company, func(e *outbox.NewEmail) {
		e.HTML, e.Job.Subject, e.Job.To, e.CPFCNPJ = "<p>corpo sigiloso</p>", "assunto sigiloso", address, encrypted
		e.Job.Tags = []string{"c-maria"}
		e.Job.Recipient = email.JobRecipient{ExternalID: "c-maria", CPFCNPJHash: email.HashTaxID(cpf, nil), Nome: name, Email: address}
	})
}

func (w *world) claim(t *testing.T, id uuid.UUID) (token uuid.UUID) {
	t.Helper()
	token = uuid.New()
	w.advance(t, outbox.Transition{
		ID: id, Guard: outbox.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1, Events: []email.Event{
			{Type: email.EventReceived, At: time.Now()},
			{Type: email.EventValidated, At: time.Now()},
			{Type: email.EventSentAttempt, At: time.Now(), Metadata: map[string]any{"attemptId": token.String()}},
		}, Recipient: &recipient.Recipient{
			ID: recipient.ID(w.company, "c-maria", "", ""), ExternalID: "c-maria", CPFCNPJHash: email.HashTaxID(cpf, nil), Nome: name, Email: address,
		},
	})
	return token
}

func (w *world) end(t *testing.T, id, token uuid.UUID, status email.Status, dead bool) {
	t.Helper()
	event := map[email.Status]email.EventType{email.Sent: email.EventSent, email.Failed: email.EventFailed}[status]
	w.advance(t, outbox.Transition{
		ID: id, Guard: outbox.GuardAttempt, Token: token, Status: status, DeadLetter: dead, ErrorCode: "SES_MESSAGE_REJECTED", ErrorReason: "no " + name,
		SESMessageID: "m-1", Events: []email.Event{{Type: event, At: time.Now(), Metadata: map[string]any{"detail": name}}},
	})
}

func (w *world) advance(t *testing.T, transition outbox.Transition) {
	t.Helper()
	if a, err := w.Store.Advance(t.Context(), transition); err != nil || !a.Applied {
		t.Fatalf("%+v, %v", a, err)
	}
}

func (w *world) bounce(token uuid.UUID) feedback.Feedback {
	return feedback.Feedback{
		NotificationID: uuid.NewString(), Kind: "Delivery", SESMessageID: "m-1", OutboxID: w.sent, AttemptID: token, CompanyID: w.company, OccurredAt: time.Now(),
		Event: email.EventDelivered, Metadata: map[string]any{"recipients": []string{address}}, Masked: map[string]any{"recipients": []string{"m***@c***.example"}},
	}
}

// newMailing has Maria in its second line, only by number in the third, and other people.
func (w *world) newMailing(t *testing.T) {
	t.Helper()
	entries := []*mailingstore.NewEntry{storetest.NewEntry(2), storetest.NewEntry(3), storetest.NewEntry(4)}
	entries[0].Email, entries[0].Nome, entries[0].Fields, entries[0].ExternalID = address, name, []string{"c-maria"}, "c-maria"
	entries[1].Email, entries[1].CPFCNPJHash, entries[1].CPFCNPJ, entries[1].Nome = "outra@cliente.example", email.HashTaxID(cpf, nil), w.seal(t, w.company), name
	m := storetest.NewMailing(w.company, nil)
	w.mailing = m.ID
	_, _, err := w.Store.IngestMailing(t.Context(), m, func(yield func(mailingstore.Line, error) bool) {
		for _, e := range entries {
			if !yield(mailingstore.Line{Entry: e}, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	w.put(t, m.ID, "e-mail;cpf;cidade\n"+address+";;c\noutra@cliente.example;529.982.247-25;d\nrui@example.com;;e\n")
}

func (w *world) put(t *testing.T, id uuid.UUID, file string) {
	t.Helper()
	encrypted, err := w.archive.Ring.EncryptReader(strings.NewReader(file), mailing.FileBinding(w.company, id))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.bucket.Put(t.Context(), mailing.FileKey(w.company, id), encrypted); err != nil {
		t.Fatal(err)
	}
}

// rows returns all rows of all tables as text.
func (w *world) rows(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, table := range w.column(t, `SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition`) {
		all[table] = nil
		for _, row := range w.column(t, `SELECT to_jsonb(t)::text FROM `+table+` t`) {
			all[table] = append(all[table], strings.ToLower(row))
		}
	}
	return all
}

func (w *world) column(t *testing.T, query string) (values []string) {
	t.Helper()
	rows, err := w.SQL.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var value string
		if err := rows.Scan(&value); err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return values
}

// namesOfMaria lists where the company's rows name her, except for her suppression.
func (w *world) namesOfMaria(t *testing.T) []string {
	t.Helper()
	var found []string
	for table, rows := range w.rows(t) {
		for _, row := range rows {
			for _, word := range maria {
				if strings.Contains(row, word) && !strings.Contains(row, w.other.String()) && (table != "suppressions" || word != maria[0]) {
					found = append(found, table+" contains "+word+": "+row)
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

func (w *world) erase(ctx context.Context, change func(*privacy.Order)) (privacy.Erased, error) {
	o := privacy.Order{Query: privacy.Query{CompanyID: w.company, TaxID: cpf}, By: storetest.Operator()}
	if change != nil {
		change(&o)
	}
	return w.archive.Erase(ctx, o)
}

func (w *world) status(t *testing.T, id uuid.UUID) (status string) {
	t.Helper()
	if err := w.SQL.QueryRowContext(t.Context(), `SELECT status FROM email_outbox WHERE id = $1`, id).Scan(&status); err != nil {
		t.Fatal(err)
	}
	return status
}

func TestExport_HoldsEverything(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, TaxID: cpf})
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]int{
		"recipients": 2, "emails": 6, "copies": 1, "emailLogs": 3, "mailingEntries": 2, "deadLetters": 1, "suppressions": 1, "idempotencyAnswers": 0, "files": 1,
	} {
		if x.Counts[what] != want {
			t.Errorf("%d %s, want %d", x.Counts[what], what, want)
		}
	}
	if len(x.Files) == 1 && (x.Files[0].MailingID != w.mailing || !slices.Equal(x.Files[0].Lines, []int{2, 3})) {
		t.Errorf("files: %+v", x.Files)
	}
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{`"cpf_cnpj":"` + cpf + `"`, name, "corpo sigiloso", "DELIVERED", address} {
		if !bytes.Contains(text, []byte(word)) {
			t.Errorf("the export does not contain %s", word)
		}
	}
	for _, word := range []string{"rui@example.com", "ana@example.com", `\\x01`, w.other.String()} {
		if bytes.Contains(text, []byte(word)) {
			t.Errorf("the export contains %s", word)
		}
	}
	if wrong, err := (&privacy.Archive{Store: w.Store, People: person.New(w.Store.DB()), Bucket: w.bucket, Ring: w.archive.Ring, HashKey: make([]byte, 32)}).Export(
		t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, TaxID: cpf}); !errors.Is(err, privacy.ErrForeignKeys) {
		t.Errorf("with another hash key: %+v, %v", wrong, err)
	}
}

// After an erasure only the existence of the emails is left. An email being sent is erased when it is final; other
// people's data is kept.
func TestErase_LeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.rows(t)
	done, err := w.erase(t.Context(), nil)
	if err != nil || done.Busy != 1 {
		t.Fatalf("%+v, %v: one email is busy", done, err)
	}
	if w.status(t, w.pending) != "CANCELLED" || w.status(t, w.busy) != "PROCESSING" || w.status(t, w.copied) != "PENDING" {
		t.Errorf("pending is %s, busy is %s, copied is %s", w.status(t, w.pending), w.status(t, w.busy), w.status(t, w.copied))
	}
	w.end(t, w.busy, w.token, email.Sent, false)
	if done, err = w.erase(t.Context(), nil); err != nil || done.Busy != 0 || done.Emails != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if found := w.namesOfMaria(t); len(found) > 0 {
		t.Errorf("rows still name Maria:\n%s", strings.Join(found, "\n"))
	}
	// Events that arrive later are stored without her.
	if _, err := w.Store.RecordFeedback(t.Context(), w.bounce(w.token)); err != nil {
		t.Fatal(err)
	}
	late := w.bounce(uuid.Nil)
	if late.AttemptID, err = w.attempt(t, w.sent); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Store.RecordFeedback(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if found := w.namesOfMaria(t); len(found) > 0 {
		t.Errorf("after late SES events, rows name Maria:\n%s", strings.Join(found, "\n"))
	}
	if _, err := w.bucket.Get(t.Context(), mailing.FileKey(w.company, w.mailing)); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("her file: %v", err)
	}
	after := w.rows(t)
	for _, table := range []string{"email_outbox", "email_logs", "email_events", "mailing_entries", "mailings", "suppressions"} {
		lost := len(before[table]) - len(after[table])
		if want := map[string]int{"email_outbox": 2}[table]; lost > want { // the pending imports of a recipient
			t.Errorf("%s lost %d rows, want %d", table, lost, want)
		}
	}
	for table, rows := range before { // the rows of the other company
		for _, row := range rows {
			if strings.Contains(row, w.other.String()) && !slices.Contains(after[table], row) {
				t.Errorf("table %s: another company's row was deleted or changed: %s", table, row)
			}
		}
	}
	var cancelled, pending int
	err = w.SQL.QueryRowContext(t.Context(), `SELECT count(*) FILTER (WHERE status = 'CANCELLED'), count(*) FILTER (WHERE status = 'PENDING') FROM mailing_entries`).Scan(&cancelled, &pending)
	if err != nil || cancelled != 2 || pending != 1 {
		t.Errorf("%d entries cancelled, want 2; %d pending, want 1 (%v)", cancelled, pending, err)
	}
	entries, err := w.Store.Audit(t.Context(), audit.Filter{Company: w.company, Action: "person", Limit: 10})
	if err != nil || len(entries) != 4 {
		t.Errorf("%d audit rows, want 4: two erasures, each begun and completed (%v)", len(entries), err)
	}
	if done, err = w.erase(t.Context(), nil); err != nil || done.Emails+done.EmailLogs+done.Entries+done.Recipients+done.Copies != 0 {
		t.Errorf("a third erasure found rows: %+v, %v", done, err)
	}
	if _, err := w.erase(t.Context(), func(o *privacy.Order) {
		o.Query, o.Forget = privacy.Query{CompanyID: w.company, Address: address}, true
	}); err != nil {
		t.Error(err)
	}
	if rows := w.rows(t)["suppressions"]; len(rows) != 0 {
		t.Errorf("with Forget, suppressions are left: %v", rows)
	}
}

func (w *world) attempt(t *testing.T, id uuid.UUID) (token uuid.UUID, err error) {
	t.Helper()
	return token, w.SQL.QueryRowContext(t.Context(), `SELECT claim_token FROM email_outbox WHERE id = $1`, id).Scan(&token)
}

// A shared address does not belong to one person only.
func TestErase_SharedAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.end(t, w.busy, w.token, email.Sent, false)
	neighbour := recipient.NewRecipient{OutboxID: uuid.Must(uuid.NewV7()), Recipient: recipient.Recipient{ID: recipient.ID(w.company, "c-2", "", ""), ExternalID: "c-2", CPFCNPJHash: email.HashTaxID("11144477735", nil), Email: address}}
	err := w.Store.AcceptRecipients(t.Context(), recipient.NewRecipients{CompanyID: w.company, RequestID: "r", CreatedAt: time.Now(), Recipients: []recipient.NewRecipient{neighbour}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Store.UpsertRecipients(t.Context(), []uuid.UUID{neighbour.OutboxID})...); err != nil {
		t.Fatal(err)
	}
	theirs := w.Accept(t, w.company, func(e *outbox.NewEmail) {
		e.Job.To, e.Job.Recipient = address, email.JobRecipient{ExternalID: "c-2", Email: address}
	})
	if preview, err := w.archive.Preview(t.Context(), privacy.Query{CompanyID: w.company, Address: address}); err != nil || preview.KnownBy.People != 2 {
		t.Errorf("the address belongs to %d people, want 2 (%v)", preview.KnownBy.People, err)
	}
	done, err := w.erase(t.Context(), nil)
	if err != nil || done.Shared != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if w.status(t, theirs) != "PENDING" || w.status(t, w.pending) != "CANCELLED" {
		t.Errorf("the status of the other person's email is %s, of Maria's %s", w.status(t, theirs), w.status(t, w.pending))
	}
}
