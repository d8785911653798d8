package retention_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
)

const day = 24 * time.Hour

func kept(t *testing.T, d storetest.Database, table, key string) []uuid.UUID {
	t.Helper()
	var ids []uuid.UUID
	rows, err := d.SQL.QueryContext(t.Context(), `SELECT DISTINCT `+key+` FROM `+table+` ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return ids
}

func expectKept(t *testing.T, d storetest.Database, table, key string, want ...uuid.UUID) {
	t.Helper()
	slices.SortFunc(want, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	if got := kept(t, d, table, key); !slices.Equal(got, want) {
		t.Errorf("%s holds %v, want %v", table, got, want)
	}
}

// Rows are deleted that long after they became final, in any final status. Logs and timelines stay, and the api reads them.
func TestPurgeOutbox(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	old := []uuid.UUID{
		storetest.EndedEmail(t, d, company, 40*day, email.Sent), storetest.EndedEmail(t, d, company, 35*day, email.Failed), storetest.EndedEmail(t, d, company, 31*day, email.Cancelled),
	}
	stay := []uuid.UUID{
		storetest.EndedEmail(t, d, company, 36*day, email.Pending), // scheduled far ahead
		storetest.EndedEmail(t, d, company, 29*day, email.Sent),
		storetest.EndedEmail(t, d, company, 0, email.Sent),
	}
	late := storetest.EndedEmail(t, d, company, 50*day, email.Sent)
	d.Run(t, `UPDATE email_outbox SET processed_at = now() - interval '10 days' WHERE id = $1`, late)

	if n := storetest.Drain(t, retention.New(d.Store.DB()).PurgeOutbox, 30*day, 2); n != len(old) {
		t.Errorf("%d deleted, want %d", n, len(old))
	}
	expectKept(t, d, "email_outbox", "id", append(stay, late)...)
	shown, err := d.Store.FindEmail(t.Context(), company, old[0])
	if err != nil || shown.Status != email.Sent || shown.Recipient != "ana@example.com" || shown.NextAt != nil {
		t.Errorf("after the purge: %+v, %v", shown, err)
	}
	if events, err := d.Store.Timeline(t.Context(), old[0]); err != nil || len(events) != 4 {
		t.Errorf("after the purge: %d events, %v", len(events), err)
	}

	// Rows before the scan position are found by the next daily scan, and not earlier.
	d.Run(t, `UPDATE email_outbox SET processed_at = now() - interval '31 days' WHERE id = $1`, late)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).PurgeOutbox, 30*day, 2); n != 0 {
		t.Errorf("%d rows behind the scan position were deleted, want none", n)
	}
	d.Run(t, `UPDATE retention_walks SET begun_at = now() - interval '25 hours'`)
	storetest.Drain(t, retention.New(d.Store.DB()).PurgeOutbox, 30*day, 2)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).PurgeOutbox, 30*day, 2); n != 1 {
		t.Errorf("%d deleted a day later", n)
	}
	expectKept(t, d, "email_outbox", "id", stay...)
}

// A row that another transaction has locked, such as that of an email that is replayed or replaced, delays no other one. It is
// kept.
func TestCleaners_SkipLockedEmails(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, s := d.Company(t), retention.New(d.Store.DB())
	locked := storetest.EndedEmail(t, d, company, 40*day, email.Failed)
	storetest.EndedEmail(t, d, company, 39*day, email.Cancelled)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `UPDATE email_outbox SET status = 'PENDING', processed_at = NULL WHERE id = $1`, locked); err != nil {
		t.Fatal(err)
	}
	if done, err := s.EraseBodies(t.Context(), 30*day, 10); err != nil || done.Count != 1 {
		t.Errorf("bodies: %+v, %v", done, err)
	}
	if done, err := s.PurgeOutbox(t.Context(), 30*day, 10); err != nil || done.Count != 1 {
		t.Errorf("rows: %+v, %v", done, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	expectKept(t, d, "email_outbox", "id", locked)
}

// oldIntakes creates recipient imports that were published to RabbitMQ 31 days ago; a worker has stored only the first.
func oldIntakes(t *testing.T, d storetest.Database, company uuid.UUID, people ...recipient.NewRecipient) []uuid.UUID {
	t.Helper()
	ids := storetest.Intake(t, d, company, people...)
	d.Run(t, `UPDATE email_outbox SET status = 'PUBLISHED', processed_at = now() - interval '31 days'`)
	storetest.Upsert(t, d, ids[0])
	for i, id := range ids { // their ids are of today
		old := storetest.IDOf(time.Duration(40-i) * day)
		d.Run(t, `UPDATE email_outbox SET id = $2 WHERE id = $1`, id, old)
		d.Run(t, `UPDATE recipient_intakes SET outbox_id = $2 WHERE outbox_id = $1`, id, old)
		ids[i] = old
	}
	return ids
}

// Imports and jobs are rows of the outbox too. An import that no worker has stored is not final, however long ago it was
// published.
func TestPurgeOutbox_Jobs(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	ids := oldIntakes(t, d, company, storetest.KnownRecipient("C-1", "ana@example.com", "Ana"), storetest.KnownRecipient("C-2", "bia@example.com", "Bia"))
	if n := storetest.Drain(t, retention.New(d.Store.DB()).PurgeOutbox, 30*day, 10); n != 1 {
		t.Errorf("%d deleted", n)
	}
	expectKept(t, d, "email_outbox", "id", ids[1])
}

// Of concurrent dispatchers one purges at a time, and no row is counted twice.
func TestPurgeOutbox_ManyAtOnce(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for i := range 40 {
		storetest.EndedEmail(t, d, company, 40*day-time.Duration(i)*time.Hour/10, email.Cancelled)
	}
	var (
		at    sync.WaitGroup
		mu    sync.Mutex
		total int
	)
	for range 8 {
		at.Go(func() {
			for storetest.Ask[int](t, d, `SELECT count(*) FROM email_outbox`) > 0 {
				done, err := retention.New(d.Store.DB()).PurgeOutbox(t.Context(), 30*day, 3)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				total += done.Count
				mu.Unlock()
			}
		})
	}
	at.Wait()
	if total != 40 {
		t.Errorf("%d deleted", total)
	}
}

// The content of an email is erased, its recipient is kept; the email cannot be replayed.
func TestEraseBodies(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	seven := 7
	if _, err := d.Store.SetRetention(t.Context(), storetest.Because("their contract"), tenant.Retention{CompanyID: other, Bodies: &seven}); err != nil {
		t.Fatal(err)
	}
	old, young := storetest.EndedEmail(t, d, company, 11*day, email.Failed), storetest.EndedEmail(t, d, company, 8*day, email.Failed)
	theirs, theirsYoung := storetest.EndedEmail(t, d, other, 8*day, email.Sent), storetest.EndedEmail(t, d, other, 6*day, email.Sent)
	open := storetest.EndedEmail(t, d, company, 12*day, email.Pending)
	erased := func() []uuid.UUID {
		t.Helper()
		return kept(t, d, "email_outbox WHERE body_erased_at IS NOT NULL", "id")
	}

	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseBodies, 10*day, 2); n != 1 || !slices.Equal(erased(), []uuid.UUID{old}) {
		t.Errorf("%d erased: %v", n, erased())
	}
	ofOther := func(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error) {
		return retention.New(d.Store.DB()).EraseCompanyBodies(ctx, other, age, limit)
	}
	if n := storetest.Drain(t, ofOther, 7*day, 2); n != 1 || !slices.Equal(erased(), []uuid.UUID{old, theirs}) {
		t.Errorf("%d erased: %v, want %v too", n, erased(), theirs)
	}
	if left := storetest.Ask[string](t, d, `SELECT concat_ws('|', html, text_body, payload - 'subject' - 'htmlRef') FROM email_outbox WHERE id = $1`, old); left != `|{"cc": ["bia@example.com"], "to": "ana@example.com"}` {
		t.Errorf("left of it: %s", left)
	}
	for id, want := range map[uuid.UUID]bool{old: true, young: false, open: false, theirsYoung: false} {
		moved, err := d.Store.Advance(t.Context(), storetest.ReplayOf(id))
		if err != nil || moved.Erased != want || moved.Applied != (id == young) {
			t.Errorf("replay: %+v, %v", moved, err)
		}
	}
	// A late event of the provider proves that the email was accepted.
	token := storetest.Ask[uuid.UUID](t, d, `SELECT claim_token FROM email_outbox WHERE id = $1`, old)
	if moved, err := d.Store.Advance(t.Context(), storetest.SentOf(old, token)); err != nil || !moved.Applied {
		t.Errorf("a late success: %+v, %v", moved, err)
	}
	var refused *deadletter.NotReplayableError
	letter := deadletter.Letter{ID: uuid.New(), Target: email.TargetSend, OutboxID: &theirs}
	if err := d.Store.RetryDeadLetter(t.Context(), letter, deadletter.LetterRetry{TTL: day}); !errors.As(err, &refused) || refused.Reason != "the content of the email has been deleted" {
		t.Errorf("a dead letter: %v", err)
	}
}

// The body of a mailing's email consists of the entry's values.
func TestEraseBodies_OfAMailing(t *testing.T) {
	t.Parallel()
	for name, clean := range map[string]func(*retention.Store, context.Context, time.Duration, int) (retention.Cleaned, error){
		"erased": (*retention.Store).EraseBodies,
		"purged": (*retention.Store).PurgeOutbox,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			id := storetest.EndedEmail(t, d, company, 40*day, email.Cancelled)
			storetest.OfMailing(t, d, company, id)
			d.Run(t, `UPDATE mailing_entries SET nome = 'Ana', razao_social = 'Ana Ltda' WHERE id = $1`, id)
			if n := storetest.Drain(t, func(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error) {
				return clean(retention.New(d.Store.DB()), ctx, age, limit)
			}, 30*day, 10); n != 1 {
				t.Fatalf("%d done", n)
			}
			if left := storetest.Ask[string](t, d, `SELECT email || fields::text || token || concat(nome, razao_social) FROM mailing_entries WHERE id = $1`, id); left != "ana@example.com{}" {
				t.Errorf("left of the entry: %s", left)
			}
		})
	}
}

func TestSetRetention(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	one, two, less, many := 1, 2, -1, tenant.MaxRetentionDays+1
	for _, test := range []struct{ change, want tenant.Retention }{
		{tenant.Retention{Bodies: &one, Logs: &one}, tenant.Retention{Bodies: &one, Logs: &one}},
		{tenant.Retention{Files: &one}, tenant.Retention{Bodies: &one, Files: &one, Logs: &one}},
		{tenant.Retention{Hashes: &one, Bodies: &two}, tenant.Retention{Bodies: &two, Files: &one, Logs: &one, Hashes: &one}},
		{tenant.Retention{}, tenant.Retention{Bodies: &two, Files: &one, Logs: &one, Hashes: &one}},
		{tenant.Retention{Bodies: new(int), Logs: new(int)}, tenant.Retention{Files: &one, Hashes: &one}},
		{tenant.Retention{Files: new(int), Hashes: new(int)}, tenant.Retention{}},
	} {
		test.change.CompanyID, test.want.CompanyID = company, company
		if _, err := d.Store.SetRetention(t.Context(), storetest.Because("their contract"), test.change); err != nil {
			t.Fatal(err)
		}
		got, err := d.Store.FindRetention(t.Context(), company)
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	for field, r := range map[string]tenant.Retention{"bodiesDays": {Bodies: &less}, "filesDays": {Files: &many}, "logsDays": {Logs: &less}, "hashesDays": {Hashes: &many}} {
		var cannot *tenant.RetentionError
		if _, err := d.Store.SetRetention(t.Context(), storetest.Because("their contract"), r); !errors.As(err, &cannot) || cannot.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := d.Store.SetRetention(t.Context(), storetest.Because("their contract"), tenant.Retention{CompanyID: uuid.New(), Files: &one}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a company that is none: %v", err)
	}
	if _, err := d.Store.FindRetention(t.Context(), uuid.New()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a company that is none: %v", err)
	}
	if all, err := d.Store.Retentions(t.Context()); err != nil || len(all) != 1 || all[0].CompanyID != company {
		t.Errorf("%+v, %v", all, err)
	}
}
