package privacy_test

import (
	"database/sql"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/api/internal/privacy"
	"email-gateway/shared/email"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/person"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
)

// open begins a transaction that the test ends.
func (w *world) open(t *testing.T, statement string, args ...any) *sql.Tx {
	t.Helper()
	tx, err := w.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
	return tx
}

// newImport returns the outbox row of an import of Joana.
const newImport = `
INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, expires_at)
SELECT $1, $2::uuid, l.id, 'recipients.upsert', 'r', jsonb_build_object('id', $3::text, 'cpfCnpjHash', $4::text, 'nome', 'Joana', 'email', $5::text), 'infinity'
FROM dispatch_lanes l WHERE l.company_id = $2 AND l.queue = 'recipients_queue'`

// An import accepted before the recipient was deleted, and committed after all tables were scanned, is void, and
// its data is erased too.
func TestConcurrent_Import(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	hash := email.HashTaxID(joanaCPF, nil)
	id := uuid.Must(uuid.NewV7())
	tx := h.open(t, newImport, id, h.company, recipient.ID(h.company, "", hash, ""), hash, later)
	var once sync.Once
	h.archive.Progress = func(what string, _ int) {
		if what != string(person.Recipients) {
			return
		}
		once.Do(func() {
			go func() {
				for open := 0; open == 0; { // the erasure waits for it
					if err := h.SQL.QueryRow(`SELECT count(*) FROM recipients WHERE company_id = $1 AND deleted_at IS NOT NULL`, h.company).Scan(&open); err != nil {
						break
					}
				}
				_ = tx.Commit()
			}()
		})
	}
	done := h.eraseJoana(t, func(o *privacy.Order) { o.Timeout = 30 * time.Second })
	if !done.Complete() {
		t.Errorf("%+v", done)
	}
	h.mustNotName(t, append(slices.Clone(joana), `"joana"`)...)
	for _, err := range h.Store.UpsertRecipients(t.Context(), []uuid.UUID{id}) { // RabbitMQ still has its message
		if err == nil {
			t.Error("the worker stored an import of before the erasure")
		}
	}
	h.mustNotName(t, joana...)
}

// A person who is imported after the erasure is a new person.
func TestConcurrent_ImportedAgain(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	hash := email.HashTaxID(joanaCPF, nil)
	again := recipient.NewRecipient{Recipient: recipient.Recipient{ID: recipient.ID(h.company, "", hash, ""), CPFCNPJHash: hash, Email: later}}
	var erased bool
	h.archive.Progress = func(what string, _ int) {
		if erased && again.OutboxID == uuid.Nil { // the rounds after the recipient was deleted
			again.OutboxID = uuid.Must(uuid.NewV7())
			h.intake(t, again)
			for _, err := range h.Store.UpsertRecipients(t.Context(), []uuid.UUID{again.OutboxID}) {
				if err != nil {
					t.Error(err)
				}
			}
		}
		erased = erased || what == string(person.Recipients)
	}
	if done := h.eraseJoana(t, nil); !done.Complete() {
		t.Errorf("%+v", done)
	}
	if found, err := h.Store.FindRecipient(t.Context(), h.company, again.ID); err != nil || found.Email != later {
		t.Errorf("%+v, %v", found, err)
	}
}

// An upload makes ids until it ends: its lines that are read while the erasure waits for it are erased too.
func TestConcurrent_UploadReadsOn(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	m := storetest.NewMailing(h.company, nil)
	line := func(n int, address string) mailingstore.Line {
		entry := storetest.NewEntry(n)
		entry.Email, entry.CPFCNPJHash = address, email.HashTaxID(joanaCPF, nil)
		return mailingstore.Line{Entry: entry}
	}
	h.put(t, m.ID, "e-mail;cpf\n"+later+";"+joanaCPF+"\n"+former+";"+joanaCPF+"\n")
	begun, goOn, ended, erased := make(chan struct{}), make(chan struct{}), make(chan error, 1), make(chan privacy.Erased, 1)
	go func() {
		_, _, err := h.Store.IngestMailing(t.Context(), m, func(yield func(mailingstore.Line, error) bool) {
			if yield(line(2, later), nil) {
				close(begun)
				<-goOn
				yield(line(3, former), nil)
			}
		})
		ended <- err
	}()
	select {
	case <-begun:
	case err := <-ended:
		t.Fatal(err)
	}
	go func() { erased <- h.eraseJoana(t, func(o *privacy.Order) { o.Timeout = time.Minute }) }()
	storetest.WaitFor(t, h.Database, `SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle' AND query LIKE $1`, "%FROM pg_locks%")
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if done := <-erased; !done.Complete() || done.Entries != 2 {
		t.Errorf("%+v", done)
	}
	h.mustNotName(t, joana...)
}

// The rows of an open transaction are unknown: the erasure reports that it must be run again.
func TestConcurrent_TransactionStaysOpen(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	hash := email.HashTaxID(joanaCPF, nil)
	tx := h.open(t, newImport, uuid.Must(uuid.NewV7()), h.company, recipient.ID(h.company, "", hash, ""), hash, former)
	if done := h.eraseJoana(t, nil); done.Writing != 1 || done.Complete() {
		t.Errorf("%+v", done)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if done := h.eraseJoana(t, nil); !done.Complete() {
		t.Errorf("%+v", done)
	}
	h.mustNotName(t, joana...)
}

// prepare ends the session of a transaction, whose changes stay invisible and locked until complete is called.
func (w *world) prepare(t *testing.T, tx *sql.Tx) (complete func()) {
	t.Helper()
	name := pq.QuoteLiteral(uuid.NewString())
	if _, err := tx.ExecContext(t.Context(), `PREPARE TRANSACTION `+name); err != nil {
		t.Fatalf("%v: set max_prepared_transactions to 20", err)
	}
	t.Cleanup(func() { _, _ = w.SQL.Exec(`ROLLBACK PREPARED ` + name) }) // the database could not be dropped
	return func() { w.alter(t, `COMMIT PREPARED `+name) }
}

// A prepared transaction has no session.
func TestConcurrent_PreparedTransaction(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	hash := email.HashTaxID(joanaCPF, nil)
	complete := h.prepare(t, h.open(t, newImport, uuid.Must(uuid.NewV7()), h.company, recipient.ID(h.company, "", hash, ""), hash, former))
	if done := h.eraseJoana(t, nil); done.Writing != 1 || done.Complete() {
		t.Errorf("%+v", done)
	}
	complete()
	if done := h.eraseJoana(t, nil); !done.Complete() {
		t.Errorf("%+v", done)
	}
	h.mustNotName(t, joana...)
}

// A transaction gets another name in pg_locks when it is prepared.
func TestConcurrent_PreparedMeanwhile(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	hash := email.HashTaxID(joanaCPF, nil)
	tx := h.open(t, newImport, uuid.Must(uuid.NewV7()), h.company, recipient.ID(h.company, "", hash, ""), hash, former)
	ended := make(chan privacy.Erased, 1)
	go func() { ended <- h.eraseJoana(t, nil) }()
	storetest.WaitFor(t, h.Database, `SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle' AND query LIKE $1`, "%FROM pg_locks%")
	complete := h.prepare(t, tx)
	if done := <-ended; done.Writing != 1 || done.Complete() {
		t.Errorf("%+v", done)
	}
	complete()
	if done := h.eraseJoana(t, nil); !done.Complete() {
		t.Errorf("%+v", done)
	}
	h.mustNotName(t, joana...)
}

// A program that locks one email in an open transaction does not block the erasure of others.
func TestConcurrent_LockedEmail(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	held, copied, free := h.toJoana(t, later, nil), h.copied, h.toJoana(t, later, nil)
	tx := h.open(t, `SELECT FROM email_outbox WHERE id = ANY (ARRAY[$1, $2]::uuid[]) FOR UPDATE`, held, copied)
	if done := h.eraseJoana(t, nil); done.Busy != 2 || done.Complete() {
		t.Errorf("%+v", done)
	}
	if h.status(t, held) != "PENDING" || h.status(t, free) != "CANCELLED" {
		t.Errorf("the locked email is %s, the unlocked one %s", h.status(t, held), h.status(t, free))
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if done := h.eraseJoana(t, nil); !done.Complete() {
		t.Errorf("%+v", done)
	}
	h.mustNotName(t, joana...)
}

// During an erasure, emails of other tenants are accepted without waiting for its locks.
func TestConcurrent_AcceptsGoOn(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	const emails = 600
	h.alter(t, `
INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at)
SELECT gen_random_uuid(), company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, now() + interval '1 day'
FROM email_outbox, generate_series(1, $2::int) WHERE id = $1`, h.toJoana(t, later, nil), emails-1)
	ended := make(chan privacy.Erased, 1)
	go func() { ended <- h.eraseJoana(t, nil) }()
	var waits []int
	for {
		select {
		case done := <-ended:
			if done.Cancelled != emails || !done.Complete() || len(waits) == 0 {
				t.Errorf("%+v after %d accepts", done, len(waits))
			}
			if slices.Max(waits) > 0 {
				t.Errorf("up to %d accepts waited for a lock", slices.Max(waits))
			}
			return
		default:
			h.Accept(t, h.other, nil)
			var blocked int
			if err := h.SQL.QueryRowContext(t.Context(), `
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%INSERT INTO email_outbox%'`).Scan(&blocked); err != nil {
				t.Fatal(err)
			}
			waits = append(waits, blocked)
		}
	}
}
