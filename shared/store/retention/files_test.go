package retention_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
)

// ended creates a mailing with n entries and a rejected line that ended that long ago.
func endedMailing(t *testing.T, d storetest.Database, company uuid.UUID, n int, status string, age time.Duration) uuid.UUID {
	t.Helper()
	id := d.Mailing(t, company, n, nil)
	d.Run(t, `INSERT INTO mailing_rejects (mailing_id, line_no, code) VALUES ($1, 99999, 'DUPLICATE')`, id)
	d.Run(t, `UPDATE mailing_entries SET status = 'CANCELLED' WHERE mailing_id = $1`, id)
	d.Run(t, `UPDATE mailings SET status = $2, cancelled = accepted, counted_at = now(), updated_at = now() - $3 * interval '1 ms',
		completed_at = CASE WHEN $2 = 'COMPLETED' THEN now() - $3 * interval '1 ms' END WHERE id = $1`, id, status, age.Milliseconds())
	return id
}

func TestDueFiles(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	ninety := 90
	if _, err := d.Store.SetRetention(t.Context(), storetest.Because("their contract"), tenant.Retention{CompanyID: other, Files: &ninety}); err != nil {
		t.Fatal(err)
	}
	due := map[uuid.UUID]bool{}
	for _, status := range []string{"COMPLETED", "CANCELLED", "FAILED"} {
		due[endedMailing(t, d, company, 1, status, 31*day)] = true
	}
	endedMailing(t, d, company, 1, "COMPLETED", 29*day)
	endedMailing(t, d, company, 1, "PAUSED", 31*day)
	endedMailing(t, d, other, 1, "COMPLETED", 89*day)
	theirs := endedMailing(t, d, other, 1, "COMPLETED", 91*day)

	list := func(age time.Duration) map[uuid.UUID]bool {
		t.Helper()
		files, err := retention.New(d.Store.DB()).DueFiles(t.Context(), age, retention.MailingFile{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		found := map[uuid.UUID]bool{}
		for _, f := range files {
			found[f.MailingID] = true
			if f.CompanyID != company && f.CompanyID != other {
				t.Errorf("%+v", f)
			}
		}
		return found
	}
	if found := list(0); len(found) != 1 || !found[theirs] {
		t.Errorf("where files are kept for ever, but for one company: %v", found)
	}
	found := list(30 * day)
	if len(found) != 4 || !found[theirs] {
		t.Errorf("found %v, want %v and %v", found, due, theirs)
	}
	var ids []uuid.UUID
	for id := range due {
		if !found[id] {
			t.Errorf("%s is missing", id)
		}
		ids = append(ids, id)
	}
	for _, want := range []int{3, 0} {
		if n, err := retention.New(d.Store.DB()).MarkFilesDeleted(t.Context(), ids); err != nil || n != want {
			t.Errorf("%d marked, %v, want %d", n, err, want)
		}
	}
	if found := list(30 * day); len(found) != 1 || !found[theirs] {
		t.Errorf("due files after they were marked: %v, want none", found)
	}
	if m, err := d.Store.FindMailing(t.Context(), company, ids[0]); err != nil || m.FileDeletedAt == nil {
		t.Errorf("%+v, %v", m, err)
	}
}

// Pages have every file once, in the order in which the mailings ended, also if mailings ended at the same time.
func TestDueFiles_Pages(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	var want []uuid.UUID
	for range 5 {
		want = append(want, endedMailing(t, d, company, 1, "COMPLETED", 40*day))
	}
	d.Run(t, `UPDATE mailings SET completed_at = date_trunc('day', now()) - interval '40 days' + interval '1 microsecond'`)
	want = append(want, endedMailing(t, d, company, 1, "FAILED", 35*day))
	want = append([]uuid.UUID{endedMailing(t, d, company, 1, "CANCELLED", 50*day)}, want...)
	var got []uuid.UUID
	for after := (retention.MailingFile{}); ; {
		page, err := retention.New(d.Store.DB()).DueFiles(t.Context(), 30*day, after, 2)
		if err != nil || len(page) > 2 {
			t.Fatalf("%+v, %v", page, err)
		}
		if len(page) == 0 {
			break
		}
		for _, f := range page {
			got = append(got, f.MailingID)
		}
		after = page[len(page)-1]
	}
	if !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
}

// Entries and rejects are deleted, the counts of the mailing are kept, and it cannot be resumed.
func TestPurgeEntries(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	old := endedMailing(t, d, company, 25, "COMPLETED", 400*day)
	d.Run(t, `UPDATE mailings SET failed = 1, cancelled = cancelled - 1 WHERE id = $1`, old)
	empty := endedMailing(t, d, company, 0, "CANCELLED", 390*day)
	keep := []uuid.UUID{
		endedMailing(t, d, company, 2, "COMPLETED", 300*day),
		endedMailing(t, d, company, 2, "PAUSED", 400*day),
	}
	uncounted, settling := endedMailing(t, d, company, 2, "CANCELLED", 400*day), endedMailing(t, d, company, 2, "CANCELLED", 400*day)
	d.Run(t, `UPDATE mailings SET counted_at = NULL WHERE id = $1`, uncounted)
	d.Run(t, `UPDATE mailings SET settling = 'cancel' WHERE id = $1`, settling)
	dry := endedMailing(t, d, company, 2, "COMPLETED", 400*day) // an erasure of an earlier release cleared counted_at
	d.Run(t, `UPDATE mailings SET dry_run = true, counted_at = NULL WHERE id = $1`, dry)
	d.Run(t, `DELETE FROM email_outbox`) // their jobs

	if n := storetest.Drain(t, retention.New(d.Store.DB()).PurgeEntries, 365*day, 10); n != 30 {
		t.Errorf("%d deleted", n)
	}
	expectKept(t, d, "mailing_entries", "mailing_id", append(keep, uncounted, settling)...)
	expectKept(t, d, "mailing_rejects", "mailing_id", append(keep, uncounted, settling)...)
	for _, id := range []uuid.UUID{old, empty} {
		m, err := d.Store.FindMailing(t.Context(), company, id)
		if err != nil || m.EntriesDeletedAt == nil || m.FirstEntry.Valid || m.LastEntry.Valid {
			t.Errorf("%+v, %v", m, err)
		}
	}
	if m, err := d.Store.FindMailing(t.Context(), company, old); err != nil || m.Accepted != 25 || m.Cancelled != 24 || m.Failed != 1 {
		t.Errorf("numbers: %+v, %v", m, err)
	}
	var refused *mailing.StateError
	if _, err := d.Store.RetryFailedEntries(t.Context(), company, old); !errors.As(err, &refused) || refused.Reason != "its entries were deleted at the end of their retention period" {
		t.Errorf("retry: %v", err)
	}
	if page, err := d.Store.MailingEntries(t.Context(), company, old, mailing.EntryFilter{Limit: 10}); err != nil || len(page) != 0 {
		t.Errorf("entries: %v, %v", page, err)
	}
}

// Entries are kept while an email of the mailing is in the outbox, because its final status is written to its entry.
func TestPurgeEntries_NotBeforeTheEmails(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	seven := 7
	if _, err := d.Store.SetRetention(t.Context(), storetest.Because("their contract"), tenant.Retention{CompanyID: company, Logs: &seven}); err != nil {
		t.Fatal(err)
	}
	id := d.Accept(t, company, nil)
	mailingID := storetest.OfMailing(t, d, company, id)
	storetest.Apply(t, d, storetest.CancelOf(id))
	d.Run(t, `UPDATE mailings SET status = 'COMPLETED', cancelled = 1, counted_at = now(), completed_at = now() - interval '8 days' WHERE id = $1`, mailingID)
	for _, age := range []time.Duration{0, 365 * day} {
		if n := storetest.Drain(t, retention.New(d.Store.DB()).PurgeEntries, age, 10); n != 0 {
			t.Errorf("%d deleted", n)
		}
	}
	d.Run(t, `DELETE FROM email_outbox`)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).PurgeEntries, 0, 10); n != 1 { // by the company's own age
		t.Errorf("%d deleted", n)
	}
}

func TestCleanRecipients(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	storetest.Upsert(t, d, storetest.Intake(t, d, company, storetest.KnownRecipient("old", "a@example.com", ""), storetest.KnownRecipient("young", "b@example.com", ""), storetest.KnownRecipient("there", "c@example.com", ""), storetest.KnownRecipient("waits", "d@example.com", ""))...)
	d.Run(t, `UPDATE recipients SET deleted_at = now() - CASE external_id WHEN 'young' THEN interval '399 days' ELSE interval '401 days' END WHERE external_id <> 'there'`)
	d.Run(t, `INSERT INTO recipient_intakes SELECT id, gen_random_uuid(), company_id, email FROM recipients WHERE external_id = 'waits'`)
	for _, want := range []int{1, 0} {
		if n, err := retention.New(d.Store.DB()).CleanRecipients(t.Context(), 400*day, 10); err != nil || n != want {
			t.Errorf("%d deleted, %v, want %d", n, err, want)
		}
	}
	if left := storetest.Ask[string](t, d, `SELECT string_agg(external_id, ' ' ORDER BY external_id) FROM recipients`); left != "there waits young" {
		t.Errorf("left: %s", left)
	}
}
