package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/suppression"
	"email-gateway/shared/waittest"
)

// limit gives the company a limit of its own.
func limit(tb testing.TB, d storetest.Database, company uuid.UUID, q quota.Quota, most int64) {
	tb.Helper()
	if err := d.Store.SetQuotas(tb.Context(), storetest.Operator(), company, map[quota.Quota]*int64{q: &most}); err != nil {
		tb.Fatal(err)
	}
}

// used is what the company uses of a quota.
func used(tb testing.TB, d storetest.Database, company uuid.UUID, q quota.Quota) int64 {
	tb.Helper()
	all, err := d.Store.CompanyQuotas(tb.Context(), company)
	if err != nil {
		tb.Fatal(err)
	}
	return all[slices.IndexFunc(all, func(u quota.Use) bool { return u.Quota == q })].Use
}

// fold adds the deltas to the totals.
func fold(tb testing.TB, d storetest.Database) {
	tb.Helper()
	if _, err := d.Store.FoldQuotas(tb.Context(), 1000, true); err != nil {
		tb.Fatal(err)
	}
}

// refused fails unless err reports that the quota would be exceeded.
func refused(tb testing.TB, err error, q quota.Quota, limit, use int64) {
	tb.Helper()
	var over *quota.Error
	if !errors.As(err, &over) {
		tb.Errorf("%s: %v", q, err)
		return
	}
	daily := q == quota.EmailsPerDay || q == quota.MailingRowsPerDay
	if over.Quota != q || over.Limit != limit || over.Use != use || (over.Reset != nil) != daily {
		tb.Errorf("%+v, want %s with limit %d and use %d", *over, q, limit, use)
	}
	if daily && (!over.Reset.After(time.Now()) || !over.Reset.Equal(over.Reset.UTC().Truncate(24*time.Hour)) || time.Until(*over.Reset) > 24*time.Hour) {
		tb.Errorf("reset %v is not the next midnight", over.Reset)
	}
}

func accept(tb testing.TB, d storetest.Database, company uuid.UUID, change func(*outbox.NewEmail)) error {
	tb.Helper()
	return d.Store.NewAccepter().Accept(tb.Context(), storetest.NewEmail(company, change))
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func TestQuota_EmailsPerDay(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	limit(t, d, company, quota.EmailsPerDay, 3)
	for range 3 {
		must(t, accept(t, d, company, nil))
	}
	refused(t, accept(t, d, company, nil), quota.EmailsPerDay, 3, 3)
	must(t, accept(t, d, other, nil))
	fold(t, d)
	if n := ask[int](t, d, `SELECT count(*) FROM quota_deltas`); n != 0 {
		t.Errorf("%d deltas are not folded", n)
	}
	refused(t, accept(t, d, company, nil), quota.EmailsPerDay, 3, 3)
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE company_id = $1`, company); n != 3 {
		t.Errorf("%d emails", n)
	}

	// Midnight: what was counted is of the day before, folded or not.
	run(t, d, `UPDATE quota_totals SET day = day - 1`)
	must(t, accept(t, d, company, nil))
	run(t, d, `UPDATE quota_deltas SET day = day - 1`)
	fold(t, d)
	if n := used(t, d, company, quota.EmailsPerDay); n != 0 {
		t.Errorf("%d emails of today", n)
	}
	for range 3 {
		must(t, accept(t, d, company, nil))
	}
	refused(t, accept(t, d, company, nil), quota.EmailsPerDay, 3, 3)
	fold(t, d)
	refused(t, accept(t, d, company, nil), quota.EmailsPerDay, 3, 3)

	// Below what is in use; unlimited; the installation's.
	limit(t, d, company, quota.EmailsPerDay, 1)
	refused(t, accept(t, d, company, nil), quota.EmailsPerDay, 1, 3)
	limit(t, d, company, quota.EmailsPerDay, 0)
	must(t, accept(t, d, company, nil))
	must(t, d.Store.SetQuotas(t.Context(), storetest.Operator(), company, map[quota.Quota]*int64{quota.EmailsPerDay: nil}))
	must(t, accept(t, d, company, nil))
}

// A repeated request gets the same response and counts once, also if the quota is used up.
func TestQuota_RepeatsDoNotCount(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	limit(t, d, company, quota.EmailsPerDay, 4)
	about := &outbox.Aggregate{Type: "interview", ID: "1", EventType: "REMINDER"}
	var taken *outbox.AggregateTakenError
	var key *idempotency.UsedError
	for range 3 {
		if err := accept(t, d, company, func(e *outbox.NewEmail) { e.Aggregate = about }); err != nil && !errors.As(err, &taken) {
			t.Fatal(err)
		}
		if err := accept(t, d, company, func(e *outbox.NewEmail) { e.Idempotency = keyFor("k") }); err != nil && !errors.As(err, &key) {
			t.Fatal(err)
		}
	}
	if n := used(t, d, company, quota.EmailsPerDay); n != 2 || taken == nil || key == nil {
		t.Errorf("%d emails are counted; %v, %v", n, taken, key)
	}
	must(t, accept(t, d, company, nil))
	must(t, accept(t, d, company, nil))
	if err := accept(t, d, company, func(e *outbox.NewEmail) { e.Aggregate = about }); !errors.As(err, &taken) {
		t.Errorf("the aggregate's email, once more: %v", err)
	}
	refused(t, accept(t, d, company, func(e *outbox.NewEmail) {
		e.Aggregate = &outbox.Aggregate{Type: "interview", ID: "2", EventType: "REMINDER"}
	}), quota.EmailsPerDay, 4, 4)
	if n := ask[int](t, d, `SELECT count(*) FROM outbox_aggregates`); n != 1 {
		t.Errorf("%d keys are taken", n)
	}
}

// Two processes that accept at the same time exceed no quota, whatever they have cached, and a company that has used up its quota
// does not delay another.
func TestQuota_TwoProcesses(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	const most = 40
	limit(t, d, company, quota.EmailsPerDay, most)
	var accepted, over atomic.Int64
	var senders sync.WaitGroup
	for range 2 {
		s := open(t, d.URL, store.Options{})
		a := s.NewAccepter()
		t.Cleanup(a.Close)
		for range 16 {
			senders.Go(func() {
				for range 5 {
					var refused *quota.Error
					switch err := a.Accept(t.Context(), storetest.NewEmail(company, nil)); {
					case err == nil:
						accepted.Add(1)
					case errors.As(err, &refused):
						over.Add(1)
					default:
						t.Error(err)
					}
					if err := a.Accept(t.Context(), storetest.NewEmail(other, nil)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	senders.Wait()
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE company_id = $1`, company); n != most || accepted.Load() != most || over.Load() != 160-most {
		t.Errorf("%d emails, %d accepted, %d refused", n, accepted.Load(), over.Load())
	}
	if n := used(t, d, company, quota.EmailsPerDay); n != most {
		t.Errorf("%d are counted", n)
	}
}

// The requests of a company that is close to a quota wait for each other, for a second at
// most, and requests of other companies do not.
func TestQuota_HeldLock(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other, third := d.Company(t), d.Company(t), d.Company(t)
	limit(t, d, company, quota.EmailsPerDay, 3)
	limit(t, d, other, quota.EmailsPerDay, 3)
	must(t, accept(t, d, company, nil))
	must(t, accept(t, d, other, nil))
	fold(t, d)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM quota_totals WHERE company_id = $1 FOR UPDATE`, company); err != nil {
		t.Fatal(err)
	}
	a := d.Store.NewAccepter()
	defer a.Close()
	held := make(chan error, 20)
	for range cap(held) {
		go func() { held <- a.Accept(t.Context(), storetest.NewEmail(company, nil)) }()
	}
	storetest.WaitBlocked(t, d, 1)
	must(t, a.Accept(t.Context(), storetest.NewEmail(third, nil)))
	must(t, a.Accept(t.Context(), storetest.NewEmail(other, nil)))
	fold(t, d)
	if n := ask[int](t, d, `SELECT count(*) FROM quota_deltas WHERE company_id <> $1`, company); n != 0 {
		t.Errorf("%d deltas of others are not folded", n)
	}
	for range cap(held) {
		if err := <-held; !errors.Is(err, store.ErrBusy) {
			t.Errorf("while the lock is held: %v", err)
		}
	}
}

func TestQuota_ScheduledEmails(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	limit(t, d, company, quota.ScheduledEmails, 2)
	later := func(e *outbox.NewEmail) { e.SendAt = time.Now().Add(time.Hour) }
	first := d.Accept(t, company, later)
	second := d.Accept(t, company, later)
	refused(t, accept(t, d, company, later), quota.ScheduledEmails, 2, 2)
	plain := storetest.NewEmail(company, nil)
	must(t, d.Store.NewAccepter().Accept(t.Context(), plain))

	// Moving one that is scheduled is nothing new; one that was due is.
	move := func(id uuid.UUID, at time.Time) error {
		_, err := d.Store.Reschedule(t.Context(), outbox.Move{CompanyID: company, ID: id, SendAt: at, TTL: time.Hour, At: time.Now()})
		return err
	}
	must(t, move(first, time.Now().Add(2*time.Hour)))
	refused(t, move(plain.ID, time.Now().Add(time.Hour)), quota.ScheduledEmails, 2, 2)
	if ask[bool](t, d, `SELECT next_at > now() FROM email_outbox WHERE id = $1`, plain.ID) {
		t.Error("the email was moved although the quota is used up")
	}

	// Cancelled, and due: there is room again.
	moved, err := d.Store.Advance(t.Context(), outbox.Transition{
		ID: first, Guard: outbox.GuardOpen, Status: email.Cancelled, Events: []email.Event{{Type: email.EventCancelled, At: time.Now().UTC()}},
	})
	if err != nil || !moved.Applied {
		t.Fatal(moved, err)
	}
	must(t, move(plain.ID, time.Now().Add(time.Hour)))
	refused(t, accept(t, d, company, later), quota.ScheduledEmails, 2, 2)
	run(t, d, `UPDATE email_outbox SET next_at = now() WHERE id = $1`, second)
	fold(t, d)
	must(t, accept(t, d, company, later))
	refused(t, accept(t, d, company, later), quota.ScheduledEmails, 2, 2)
	if n := used(t, d, company, quota.ScheduledEmails); n != 2 {
		t.Errorf("%d are scheduled", n)
	}
}

// An email of a mailing that is moved to a later time is a scheduled email. One that waits for
// another reason is none.
func TestQuota_ScheduledEmailsOfMailings(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	limit(t, d, company, quota.ScheduledEmails, 1)
	first, second := d.Accept(t, company, nil), d.Accept(t, company, nil)
	run(t, d, `WITH l AS (INSERT INTO dispatch_lanes (company_id, queue, mailing_id) VALUES ($1, 'email:send:low', gen_random_uuid()) RETURNING id)
		UPDATE email_outbox SET lane_id = l.id FROM l`, company)
	move := func(id uuid.UUID, at time.Time) error {
		_, err := d.Store.Reschedule(t.Context(), outbox.Move{CompanyID: company, ID: id, SendAt: at, TTL: time.Hour, At: time.Now()})
		return err
	}
	must(t, move(first, time.Now().Add(time.Hour)))
	must(t, move(first, time.Now().Add(2*time.Hour)))
	if n := used(t, d, company, quota.ScheduledEmails); n != 1 {
		t.Errorf("%d are scheduled", n)
	}
	refused(t, move(second, time.Now().Add(time.Hour)), quota.ScheduledEmails, 1, 1)
	refused(t, accept(t, d, company, func(e *outbox.NewEmail) { e.SendAt = time.Now().Add(time.Hour) }), quota.ScheduledEmails, 1, 1)
	must(t, move(first, time.Time{}))
	run(t, d, `UPDATE email_outbox SET next_at = now() + interval '1 h' WHERE id = $1`, first)
	must(t, move(second, time.Now().Add(time.Hour)))
}

func TestQuota_StoredBodyBytes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	body := func(e *outbox.NewEmail) { e.HTML, e.Text = "0123456789", "é" } // 12 bytes
	limit(t, d, company, quota.StoredBodyBytes, 24)
	first := d.Accept(t, company, body)
	d.Accept(t, company, func(e *outbox.NewEmail) { e.HTML, e.Text = "", "0123456789é" })
	refused(t, accept(t, d, company, body), quota.StoredBodyBytes, 24, 24)

	// Erased bodies, and deleted rows: two batches of the same ages.
	run(t, d, `UPDATE email_outbox SET status = 'FAILED', processed_at = now() - interval '40 days', id = (left(first_id_at(now() - interval '41 days')::text, 23) || right(id::text, 13))::uuid`)
	if _, err := retention.New(d.Store.DB()).EraseBodies(t.Context(), 30*24*time.Hour, 1); err != nil {
		t.Fatal(err)
	}
	if n := used(t, d, company, quota.StoredBodyBytes); n != 12 {
		t.Errorf("%d bytes after one body was erased", n)
	}
	must(t, accept(t, d, company, body))
	refused(t, accept(t, d, company, body), quota.StoredBodyBytes, 24, 24)
	if _, err := retention.New(d.Store.DB()).PurgeOutbox(t.Context(), 30*24*time.Hour, 10); err != nil {
		t.Fatal(err)
	}
	if n := used(t, d, company, quota.StoredBodyBytes); n != 12 {
		t.Errorf("%d bytes after the old rows were deleted", n)
	}
	fold(t, d)
	if n := used(t, d, company, quota.StoredBodyBytes); n != 12 || first == uuid.Nil {
		t.Errorf("%d bytes", n)
	}
}

func TestQuota_Recipients(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	limit(t, d, company, quota.Recipients, 3)
	all := func(people ...recipient.NewRecipient) error {
		return d.Store.AcceptRecipients(t.Context(), storetest.NewRecipients(company, people...))
	}
	ana, bia, caio, davi := storetest.KnownRecipient("A", "ana@example.com", "Ana"), storetest.KnownRecipient("B", "bia@example.com", "Bia"), storetest.KnownRecipient("C", "caio@example.com", "Caio"), storetest.KnownRecipient("D", "davi@example.com", "Davi")
	refused(t, all(ana, bia, caio, davi), quota.Recipients, 3, 0)
	nothingWritten(t, d)
	ids := storetest.Intake(t, d, company, ana, bia, ana) // the same person twice
	refused(t, all(caio, davi), quota.Recipients, 3, 2)
	storetest.Upsert(t, d, ids...)
	if n := used(t, d, company, quota.Recipients); n != 2 {
		t.Errorf("%d recipients", n)
	}
	storetest.Upsert(t, d, storetest.Intake(t, d, company, caio)...)
	refused(t, all(davi), quota.Recipients, 3, 3)
	storetest.Upsert(t, d, storetest.Intake(t, d, company, ana, bia)...) // imports of known people
	if n := used(t, d, company, quota.Recipients); n != 3 {
		t.Errorf("%d recipients", n)
	}

	// An email to a known recipient is accepted, one to a new recipient is not.
	to := func(externalID, address string) func(*outbox.NewEmail) {
		return func(e *outbox.NewEmail) {
			e.Job.To, e.Job.Recipient.Email, e.Job.Recipient.ExternalID = address, address, externalID
		}
	}
	must(t, accept(t, d, company, to("A", "ana@example.com")))
	refused(t, accept(t, d, company, to("D", "davi@example.com")), quota.Recipients, 3, 3)

	fold(t, d)
	must(t, d.Store.DeleteRecipient(t.Context(), company, recipient.ID(company, "A", "", "")))
	must(t, d.Store.DeleteRecipient(t.Context(), company, recipient.ID(company, "A", "", ""))) // twice is once
	if n := used(t, d, company, quota.Recipients); n != 2 {
		t.Errorf("%d recipients after one was deleted", n)
	}
	storetest.Upsert(t, d, storetest.Intake(t, d, company, davi)...)
	refused(t, all(ana), quota.Recipients, 3, 3)
	run(t, d, `DELETE FROM recipients`)
	fold(t, d)
	if n := used(t, d, company, quota.Recipients); n != 0 {
		t.Errorf("%d recipients after all were erased", n)
	}
}

// Emails that are accepted at the same time create their person once: the last free place is enough for all of them.
func TestQuota_OnePersonAtTheSameTime(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	limit(t, d, company, quota.Recipients, 1)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `INSERT INTO quota_totals (company_id) VALUES ($1) ON CONFLICT (company_id) DO UPDATE SET scheduled = 0`, company); err != nil {
		t.Fatal(err)
	}
	a := d.Store.NewAccepter()
	defer a.Close()
	results := make(chan error, 20)
	for range cap(results) {
		go func() {
			var err error
			for waited := range waittest.Rounds() {
				// On a busy machine the wait for the quotas may take too long; a client repeats it.
				if err = a.Accept(t.Context(), storetest.NewEmail(company, nil)); !errors.Is(err, store.ErrBusy) || waited > waittest.Limit {
					break
				}
			}
			results <- err
		}()
	}
	storetest.WaitBlocked(t, d, 1) // the first; the others are written together
	must(t, tx.Commit())
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

func TestQuota_Suppressions(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	limit(t, d, company, quota.Suppressions, 2)
	add := func(address string, reason suppression.Reason) error {
		added, err := d.Store.AddSuppression(t.Context(), company, suppression.Suppression{Address: address, Reason: reason})
		if err == nil && (added.Address != strings.ToLower(address) || added.Reason != reason || added.CreatedAt.IsZero()) {
			t.Errorf("%+v", added)
		}
		return err
	}
	must(t, add("ana@example.com", suppression.Manual))
	must(t, add("bia@example.com", suppression.Manual))
	refused(t, add("caio@example.com", suppression.Manual), quota.Suppressions, 2, 2)
	must(t, add("BIA@example.com", suppression.Manual)) // it exists already
	// An unsubscription is never refused.
	must(t, d.Store.Suppress(t.Context(), company, suppression.Suppression{Address: "caio@example.com", Reason: suppression.Unsubscribed}))
	fold(t, d)
	refused(t, add("davi@example.com", suppression.Manual), quota.Suppressions, 2, 3)
	must(t, d.Store.Unsuppress(t.Context(), company, "ana@example.com", ""))
	must(t, d.Store.Unsuppress(t.Context(), company, "bia@example.com", ""))
	must(t, add("davi@example.com", suppression.Manual))
	refused(t, add("eva@example.com", suppression.Manual), quota.Suppressions, 2, 2)
}

func TestQuota_Mailings(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	ingest := func(n int, change func(*mailing.NewMailing)) error {
		_, _, err := d.Store.IngestMailing(t.Context(), storetest.NewMailing(company, change), storetest.Lines(n))
		return err
	}

	limit(t, d, company, quota.MailingRowsPerDay, 5)
	read := 0
	_, _, err := d.Store.IngestMailing(t.Context(), storetest.NewMailing(company, nil), func(yield func(mailing.Line, error) bool) {
		storetest.Lines(100)(func(line mailing.Line, err error) bool { read++; return yield(line, err) })
	})
	refused(t, err, quota.MailingRowsPerDay, 5, 0)
	if read != 6 {
		t.Errorf("%d lines were read before the upload was refused, want 6", read)
	}
	nothingWritten(t, d)
	must(t, ingest(3, func(m *mailing.NewMailing) { m.DryRun = true }))
	must(t, ingest(2, func(m *mailing.NewMailing) { m.FileBytes = 100 }))
	refused(t, ingest(1, nil), quota.MailingRowsPerDay, 5, 5)
	limit(t, d, company, quota.MailingRowsPerDay, 0)

	limit(t, d, company, quota.RunningMailings, 2)
	must(t, ingest(1, func(m *mailing.NewMailing) { m.FileBytes = 100 }))
	refused(t, ingest(1, nil), quota.RunningMailings, 2, 2)
	held := storetest.NewMailing(company, func(m *mailing.NewMailing) { m.Held = true })
	ingested(t, d, held, storetest.Lines(1))
	_, err = d.Store.StartMailing(t.Context(), company, held.ID)
	refused(t, err, quota.RunningMailings, 2, 2)
	if status := ask[string](t, d, `SELECT status FROM mailings WHERE id = $1`, held.ID); status != "PAUSED" {
		t.Errorf("the held mailing is %s, want PAUSED", status)
	}
	_, err = d.Store.ResumeMailing(t.Context(), company, held.ID)
	refused(t, err, quota.RunningMailings, 2, 2)
	other := ask[uuid.UUID](t, d, `SELECT id FROM mailings WHERE status = 'QUEUED' ORDER BY id LIMIT 1`)
	if _, err := d.Store.PauseMailing(t.Context(), company, other); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Store.StartMailing(t.Context(), company, held.ID); err != nil {
		t.Fatal(err)
	}
	limit(t, d, company, quota.RunningMailings, 0)

	limit(t, d, company, quota.StoredFileBytes, 250)
	refused(t, ingest(1, func(m *mailing.NewMailing) { m.FileBytes = 51 }), quota.StoredFileBytes, 250, 200)
	refused(t, ingest(1, func(m *mailing.NewMailing) { m.FileBytes, m.DryRun = 51, true }), quota.StoredFileBytes, 250, 200) // it keeps the entries
	must(t, ingest(1, func(m *mailing.NewMailing) { m.FileBytes = 50 }))
	if _, err := retention.New(d.Store.DB()).MarkFilesDeleted(t.Context(), []uuid.UUID{other}); err != nil {
		t.Fatal(err)
	}
	must(t, ingest(1, func(m *mailing.NewMailing) { m.FileBytes = 100 }))

	// A file of the previous release, whose size a dispatcher determines.
	run(t, d, `UPDATE mailings SET file_bytes = NULL WHERE id = $1`, held.ID)
	must(t, d.Store.SizeFiles(t.Context(), []uuid.UUID{held.ID, other}, []int64{7, 999}))
	if n := used(t, d, company, quota.StoredFileBytes); n != 257 {
		t.Errorf("%d bytes of files", n)
	}
	limit(t, d, company, quota.StoredFileBytes, 0)

	// Its test emails count, all or nothing.
	limit(t, d, company, quota.EmailsPerDay, 1)
	tests := func(m *mailing.NewMailing) {
		m.Tests = []outbox.NewEmail{storetest.NewEmail(company, nil), storetest.NewEmail(company, nil)}
	}
	before := ask[int](t, d, `SELECT count(*) FROM mailings`)
	refused(t, ingest(1, tests), quota.EmailsPerDay, 1, 0)
	if n := ask[int](t, d, `SELECT count(*) FROM mailings`); n != before {
		t.Error("the mailing was stored although the quota is used up")
	}
}

// Templates are bodies: they count until they are blanked, which they are once no email can be
// made from them any more. Those of a dry run are not stored.
func TestQuota_MailingTemplates(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	limit(t, d, company, quota.StoredBodyBytes, 100)
	templates := func(m *mailing.NewMailing) { m.HTML, m.Text = strings.Repeat("h", 40), "é12345678" } // 50 bytes
	hold := func(m *mailing.NewMailing) { templates(m); m.Held = true }
	upload := func(change func(*mailing.NewMailing)) error {
		_, _, err := d.Store.IngestMailing(t.Context(), storetest.NewMailing(company, change), storetest.Lines(1))
		return err
	}
	unstarted, failed := d.Mailing(t, company, 1, hold), d.Mailing(t, company, 1, templates)
	refused(t, upload(hold), quota.StoredBodyBytes, 100, 100)
	refused(t, accept(t, d, company, nil), quota.StoredBodyBytes, 100, 100)
	must(t, upload(func(m *mailing.NewMailing) { templates(m); m.DryRun = true }))
	fold(t, d)
	refused(t, upload(templates), quota.StoredBodyBytes, 100, 100)
	limit(t, d, company, quota.StoredBodyBytes, 1000)
	_, _, err := d.Store.IngestMailing(t.Context(), storetest.NewMailing(company, templates), storetest.Lines(0)) // nothing to send
	must(t, err)
	if n := used(t, d, company, quota.StoredBodyBytes); n != 100 {
		t.Errorf("%d bytes are counted", n)
	}

	// Past their time: one that was never started, one that can be resumed, one whose email
	// can be sent again.
	sent := storetest.EndedEmail(t, d, company, 40*24*time.Hour, email.Failed)
	body := used(t, d, company, quota.StoredBodyBytes) - 100
	retried := storetest.OfMailing(t, d, company, sent)
	run(t, d, `UPDATE mailings SET status = CASE id WHEN $1 THEN 'CANCELLED' ELSE 'FAILED' END, updated_at = now() - interval '31 days' WHERE id IN ($1, $2)`, unstarted, failed)
	run(t, d, `UPDATE mailings SET status = 'COMPLETED', failed = 1, counted_at = now(), completed_at = now() - interval '31 days' WHERE id = $1`, retried)
	of := func(id uuid.UUID) bool {
		t.Helper()
		_, err := d.Store.MailingTemplates(t.Context(), id)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	erase := func(want int) {
		t.Helper()
		if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseTemplates, 30*24*time.Hour, 2); n != want {
			t.Errorf("%d are blanked, want %d", n, want)
		}
	}
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseTemplates, 0, 2); n != 0 {
		t.Errorf("where bodies are kept for ever %d are blanked", n)
	}
	erase(1)
	if of(unstarted) || !of(failed) || !of(retried) {
		t.Errorf("never started %v, failed %v, retried %v", of(unstarted), of(failed), of(retried))
	}
	run(t, d, `UPDATE mailings SET entries_deleted_at = now() WHERE id = $1`, failed)
	run(t, d, `UPDATE email_outbox SET html = CASE WHEN html IS NOT NULL THEN '' END, text_body = NULL, body_erased_at = now() WHERE id = $1`, sent)
	erase(2)
	if n := used(t, d, company, quota.StoredBodyBytes); n != 0 {
		t.Errorf("%d bytes are counted at the end, %d of them of the email and its mailing", n, body)
	}
}

// Of several uploads at once as many are accepted as fit.
func TestQuota_MailingsAtOnce(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	limit(t, d, company, quota.RunningMailings, 2)
	var accepted atomic.Int64
	var uploads sync.WaitGroup
	for range 6 {
		uploads.Go(func() {
			_, _, err := d.Store.IngestMailing(t.Context(), storetest.NewMailing(company, nil), storetest.Lines(3))
			var over *quota.Error
			switch {
			case err == nil:
				accepted.Add(1)
			case !errors.As(err, &over):
				t.Error(err)
			}
		})
	}
	uploads.Wait()
	if n := accepted.Load(); n != 2 {
		t.Errorf("%d were accepted", n)
	}
}

// A program's functions are bound as the api is, in its own transaction.
func TestQuota_Programs(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	limit(t, d, company, quota.EmailsPerDay, 3)
	limit(t, d, company, quota.ScheduledEmails, 1)
	enqueue := func(n int, sendAt time.Time) error {
		tx, err := d.SQL.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		for i := range n {
			e := reminderAbout(company, outbox.Aggregate{Type: "interview", ID: uuid.NewString(), EventType: fmt.Sprint("R", i)})
			e.SendAt = sendAt
			if _, err := outbox.EnqueueIn(t.Context(), tx, e); err != nil {
				return err
			}
		}
		return tx.Commit()
	}
	refused(t, enqueue(4, time.Time{}), quota.EmailsPerDay, 3, 3)
	if n := used(t, d, company, quota.EmailsPerDay); n != 0 {
		t.Errorf("%d are counted of a transaction that was rolled back", n)
	}
	refused(t, enqueue(2, time.Now().Add(time.Hour)), quota.ScheduledEmails, 1, 1)
	must(t, enqueue(1, time.Now().Add(time.Hour)))
	must(t, enqueue(2, time.Time{}))
	if n := used(t, d, company, quota.ScheduledEmails); n != 1 {
		t.Errorf("%d are scheduled", n)
	}
	refused(t, enqueue(1, time.Time{}), quota.EmailsPerDay, 3, 3)
	refused(t, accept(t, d, company, nil), quota.EmailsPerDay, 3, 3)

	// Moving one that is due to a later time.
	limit(t, d, company, quota.EmailsPerDay, 0)
	about := outbox.Aggregate{Type: "interview", ID: "moved", EventType: "R"}
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	if _, err := outbox.EnqueueIn(t.Context(), tx, reminderNow(company, about)); err != nil {
		t.Fatal(err)
	}
	_, err = outbox.RescheduleIn(t.Context(), tx, company, about, time.Now().Add(time.Hour), time.Hour)
	refused(t, err, quota.ScheduledEmails, 1, 1)
}

// A program's transaction counts its own emails, also after others were committed and folded
// meanwhile.
func TestQuota_LongTransaction(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	enqueue := func(sendAt time.Time) error {
		e := reminderAbout(company, outbox.Aggregate{Type: "interview", ID: uuid.NewString(), EventType: "R"})
		e.SendAt = sendAt
		_, err := outbox.EnqueueIn(t.Context(), tx, e)
		return err
	}
	later := time.Now().Add(time.Hour)
	must(t, enqueue(later))
	must(t, enqueue(later))
	limit(t, d, company, quota.EmailsPerDay, 4) // from now on this transaction holds the lock
	limit(t, d, company, quota.ScheduledEmails, 2)
	for range 2 { // the second round reads the total of the first
		must(t, accept(t, d, company, nil))
		fold(t, d)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM quota_deltas`); n != 0 {
		t.Errorf("%d committed deltas are not folded", n)
	}
	run(t, d, `UPDATE quota_totals SET folded_before = '1000000000000'`) // as restored from a dump of another server
	savepoint := func(do string) {
		_, err := tx.ExecContext(t.Context(), do+` p`)
		must(t, err)
	}
	for range 2 {
		savepoint("SAVEPOINT")
		refused(t, enqueue(time.Time{}), quota.EmailsPerDay, 4, 4)
		savepoint("ROLLBACK TO")
		fold(t, d)
	}
	must(t, tx.Commit())
	fold(t, d)
	if n := used(t, d, company, quota.EmailsPerDay); n != 4 {
		t.Errorf("%d emails are counted", n)
	}
	refused(t, accept(t, d, company, func(e *outbox.NewEmail) { e.SendAt = later }), quota.ScheduledEmails, 2, 2)
}

// Two transactions that would exceed a quota together: close to it the second one waits for
// 200 ms, and is refused while the first one is open. Far from it, and of other companies,
// no request waits.
func TestQuota_OpenTransactions(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	begin := func() *sql.Tx {
		tx, err := d.SQL.BeginTx(t.Context(), nil)
		must(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	enqueue := func(tx *sql.Tx, company uuid.UUID) error {
		_, err := outbox.EnqueueIn(t.Context(), tx, reminderNow(company, outbox.Aggregate{Type: "interview", ID: uuid.NewString(), EventType: "R"}))
		return err
	}
	busy := func(err error) bool {
		var refused *pq.Error
		return errors.As(err, &refused) && refused.Code == pqerror.LockNotAvailable
	}
	first, second := begin(), begin()
	must(t, enqueue(first, company))
	must(t, enqueue(second, company))
	must(t, second.Rollback())

	limit(t, d, company, quota.EmailsPerDay, 3)
	must(t, enqueue(first, company))
	second, third := begin(), begin()
	if err := enqueue(second, company); !busy(err) {
		t.Errorf("beside a transaction that has used up the quota: %v", err)
	}
	must(t, enqueue(third, other))
	if err := accept(t, d, company, nil); !errors.Is(err, store.ErrBusy) {
		t.Errorf("the api: %v", err)
	}
	fold(t, d) // waits for no transaction
	must(t, enqueue(first, company))
	must(t, first.Commit())
	refused(t, enqueue(begin(), company), quota.EmailsPerDay, 3, 3)

	// One that has added much of what is left holds the lock, however far the limit is.
	limit(t, d, company, quota.EmailsPerDay, 1_000_000)
	large, small := begin(), begin()
	must(t, enqueue(large, company))
	if _, err := large.ExecContext(t.Context(), `INSERT INTO quota_deltas (company_id, emails) VALUES ($1, 20000)`, company); err != nil {
		t.Fatal(err)
	}
	must(t, enqueue(small, company))
	must(t, enqueue(large, company))
	if _, err := small.ExecContext(t.Context(), `INSERT INTO quota_deltas (company_id, emails) VALUES ($1, 20000)`, company); err != nil {
		t.Fatal(err)
	}
	if err := enqueue(small, company); !busy(err) {
		t.Errorf("the second large transaction: %v", err)
	}
}

// Scheduled emails that became due do not count toward the quota.
func TestQuota_ProgramRecountsScheduled(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	run(t, d, `UPDATE quota_totals SET scheduled = 99999, scheduled_at = now() - interval '1 hour' WHERE company_id = $1`, company)
	for range 2 {
		tx, err := d.SQL.BeginTx(t.Context(), nil)
		must(t, err)
		e := reminderAbout(company, outbox.Aggregate{Type: "interview", ID: uuid.NewString(), EventType: "R"})
		e.SendAt = time.Now().Add(time.Hour)
		_, err = outbox.EnqueueIn(t.Context(), tx, e)
		must(t, err)
		must(t, tx.Commit())
	}
	fold(t, d)
	if n := ask[int](t, d, `SELECT scheduled FROM quota_totals WHERE company_id = $1`, company); n != 2 {
		t.Errorf("%d are counted", n)
	}
}

func reminderNow(company uuid.UUID, about outbox.Aggregate) outbox.ProgramEmail {
	e := reminderAbout(company, about)
	e.SendAt = time.Time{}
	return e
}

// A mailing never takes more of the day than there is, and its recipients no more than
// there may be.
func TestQuota_Expand(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Mailing(t, company, 4, nil)
	limit(t, d, company, quota.EmailsPerDay, 3)
	room, err := d.Store.FindMailingRoom(t.Context(), company)
	if err != nil || room.Emails != 3 || room.Recipients != 10_000_000 || !room.Until.After(time.Now()) {
		t.Fatalf("%+v, %v", room, err)
	}
	job, lock, err := d.Store.LockMailing(t.Context(), id, 1, time.Minute, time.Second)
	if err != nil || lock != mailing.Locked {
		t.Fatal(lock, err)
	}
	page, err := d.Store.NextEntries(t.Context(), &job, nil, 10)
	must(t, err)
	entries := page.Entries
	x := mailing.Expansion{To: entries[3].ID, Lines: 4, Finished: true, NearQuota: true, NoNewPeople: true}
	for _, e := range entries {
		x.Entries = append(x.Entries, mailing.ExpandedEntry{
			ID: e.ID, RecipientID: recipient.ID(company, e.ExternalID, "", e.Email),
			Job: email.SendJob{OutboxID: e.ID.String(), HTMLRef: "mailing:" + id.String(), To: e.Email, Recipient: email.JobRecipient{ExternalID: e.ExternalID, Email: e.Email}},
		})
	}
	_, _, err = d.Store.Expand(t.Context(), &job, x)
	refused(t, err, quota.EmailsPerDay, 3, 0)
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE target = 'email:send'`); n != 0 {
		t.Errorf("%d emails", n)
	}
	x.Entries, x.To, x.Lines, x.Finished = x.Entries[:3], entries[2].ID, 3, false
	until := room.Until
	x.Continue, x.Waiting = &mailing.Continuation{ID: uuid.Must(uuid.NewV7()), Delay: time.Minute}, mailing.Waiting{For: quota.EmailsPerDay, Until: until}
	if n, held, err := d.Store.Expand(t.Context(), &job, x); n != 3 || !held || err != nil {
		t.Fatal(n, held, err)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM recipients`); n != 0 {
		t.Errorf("%d recipients were made", n)
	}
	m, err := d.Store.FindMailing(t.Context(), company, id)
	if waits := m.WaitsFor(time.Now()); err != nil || waits.For != quota.EmailsPerDay || !waits.Until.Equal(until) || m.Status != mailing.Queued {
		t.Errorf("%+v, %s, %v", waits, m.Status, err)
	}
	if waits := m.WaitsFor(until); waits.For != "" {
		t.Errorf("after midnight the mailing still waits for the quota: %+v", waits)
	}
	if room, err = d.Store.FindMailingRoom(t.Context(), company); err != nil || room.Emails != 0 {
		t.Errorf("%+v, %v", room, err)
	}
	refused(t, accept(t, d, company, nil), quota.EmailsPerDay, 3, 3)
}

func TestCancelUnstarted(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	hold := func(m *mailing.NewMailing) { m.Held, m.FileBytes = true, 10 }
	old, young, started, paused := d.Mailing(t, company, 1, hold), d.Mailing(t, company, 1, hold), d.Mailing(t, company, 1, hold), d.Mailing(t, company, 1, nil)
	if _, err := d.Store.StartMailing(t.Context(), company, started); err != nil {
		t.Fatal(err)
	}
	for _, id := range []uuid.UUID{started, paused} {
		if _, err := d.Store.PauseMailing(t.Context(), company, id); err != nil {
			t.Fatal(err)
		}
	}
	moved := d.Mailing(t, company, 1, hold)
	later := d.Mailing(t, company, 1, func(m *mailing.NewMailing) { m.Held, m.SendAt = true, time.Now().Add(time.Hour) })
	run(t, d, `UPDATE mailings SET created_at = now() - interval '31 days', updated_at = now() - interval '31 days' WHERE id <> $1`, young)
	if _, err := d.Store.MoveMailing(t.Context(), company, moved, time.Time{}); err != nil {
		t.Fatal(err)
	}
	run(t, d, `UPDATE mailings SET send_at = now() - interval '31 days' WHERE id IN ($1, $2)`, old, moved)
	for _, want := range []int{1, 0} {
		if n, err := d.Store.CancelUnstarted(t.Context(), 30*24*time.Hour, 10); n != want || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if got := ask[string](t, d, `SELECT string_agg(status, ' ' ORDER BY id) FROM mailings`); got != "CANCELLED PAUSED PAUSED PAUSED PAUSED PAUSED" {
		t.Error(got)
	}
	files, err := retention.New(d.Store.DB()).DueFiles(t.Context(), 30*24*time.Hour, retention.MailingFile{}, 10)
	if err != nil || len(files) != 1 || files[0].MailingID != old {
		t.Errorf("%+v, %v", files, err)
	}
	run(t, d, `UPDATE mailings SET send_at = now() - interval '31 days' WHERE id = $1`, later)
	if n, err := d.Store.CancelUnstarted(t.Context(), 30*24*time.Hour, 10); n != 1 || err != nil {
		t.Errorf("%d cancelled 31 days after the start time, %v", n, err)
	}
}

func TestSetQuotas(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	minus, five, zero := int64(-1), int64(5), int64(0)
	set := func(limits map[quota.Quota]*int64) error {
		return d.Store.SetQuotas(t.Context(), storetest.Operator(), company, limits)
	}
	for name, limits := range map[string]map[quota.Quota]*int64{
		"negative": {quota.Recipients: &minus}, "unknown": {"emails": &five}, "one of two": {quota.Recipients: &five, "emails": &five},
	} {
		if err := set(limits); !errors.Is(err, quota.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, set(map[quota.Quota]*int64{quota.Recipients: nil}))
	if n := ask[int](t, d, `SELECT count(*) FROM company_quotas`); n != 0 {
		t.Errorf("%d rows", n)
	}
	must(t, set(map[quota.Quota]*int64{quota.Recipients: &five, quota.Suppressions: &zero}))
	must(t, set(map[quota.Quota]*int64{quota.RunningMailings: &five}))
	must(t, set(map[quota.Quota]*int64{quota.RunningMailings: &five})) // nothing new
	must(t, set(map[quota.Quota]*int64{quota.Recipients: nil}))
	if n := ask[int](t, d, `SELECT count(*) FROM operator_audit WHERE action = 'company.quota' AND company_id = $1`, company); n != 3 {
		t.Errorf("%d entries of the audit", n)
	}
	limits := quota.All()
	defaults := map[quota.Quota]int64{}
	for i, q := range limits {
		defaults[q] = int64(1000 + i)
	}
	must(t, d.Store.SetQuotaDefaults(t.Context(), defaults))
	all, err := d.Store.CompanyQuotas(t.Context(), company)
	must(t, err)
	var got []string
	for _, u := range all {
		got = append(got, fmt.Sprint(u.Quota, " ", u.Limit, " ", u.Own))
	}
	want := []string{
		"scheduled_emails 1000 false", "emails_per_day 1001 false", "stored_body_bytes 1002 false", "recipients 1003 false",
		"suppressions 0 true", "stored_file_bytes 1005 false", "running_mailings 5 true", "mailing_rows_per_day 1007 false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if err := d.Store.SetQuotas(t.Context(), storetest.Operator(), uuid.New(), map[quota.Quota]*int64{quota.Recipients: &five}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of no company: %v", err)
	}
	if _, err := d.Store.CompanyQuotas(t.Context(), uuid.New()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of no company: %v", err)
	}
}
