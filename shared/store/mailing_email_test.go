package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

func TestLoad_EmailOfAMailing(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	mailing := storetest.OfMailing(t, d, company, id)
	got, err := d.Store.NewLoader().Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if got.MailingID.UUID != mailing || got.Token != "tok" || !slices.Equal(got.Fields, []string{"Recife"}) || got.HTML != "" {
		t.Errorf("%+v", got)
	}
}

func TestLoad_Suppressed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		address, reason  string
		single, ofBulk   string // why not
		copies, bulkCopy []string
	}{
		"nobody":                        {"eva@example.com", "MANUAL", "", "", nil, nil},
		"unsubscribed":                  {"ana@example.com", "UNSUBSCRIBE", "", "UNSUBSCRIBE", nil, nil},
		"bounced":                       {"ana@example.com", "BOUNCE", "BOUNCE", "BOUNCE", nil, nil},
		"a copy complained":             {"caio@example.com", "COMPLAINT", "", "", []string{"Caio@Example.com"}, []string{"Caio@Example.com"}},
		"a blind copy has unsubscribed": {"bia@example.com", "UNSUBSCRIBE", "", "", nil, []string{"bia@example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			run(t, d, `INSERT INTO suppressions (company_id, address, reason) VALUES ($1, $2, $3), ($4, 'ana@example.com', 'MANUAL')`,
				company, tt.address, tt.reason, d.Company(t)) // the last one is of another company
			id := d.Accept(t, company, func(e *outbox.NewEmail) {
				e.Job.CC, e.Job.BCC = []string{"Caio@Example.com"}, []string{"bia@example.com"}
			})
			check := func(kind, why string, copies []string) {
				t.Helper()
				got, err := d.Store.NewLoader().Load(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if got.Suppressed != why || !slices.Equal(got.SuppressedCopies, copies) {
					t.Errorf("%s: %q, without %v", kind, got.Suppressed, got.SuppressedCopies)
				}
			}
			check("an email", tt.single, tt.copies)
			storetest.OfMailing(t, d, company, id)
			check("a mailing's", tt.ofBulk, tt.bulkCopy)
		})
	}
}

// When an email of a mailing becomes final, so does its entry, in the same commit.
func TestAdvance_EndsTheEntry(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, token := d.Company(t), uuid.New()
	id := d.Accept(t, company, nil)
	storetest.OfMailing(t, d, company, id)
	check := func(step, entry, mailing string, counted bool) {
		t.Helper()
		if got := ask[string](t, d, `SELECT status FROM mailing_entries`); got != entry {
			t.Errorf("%s: the entry is %s", step, got)
		}
		if got := ask[string](t, d, `SELECT status FROM mailings`); got != mailing {
			t.Errorf("%s: the mailing is %s", step, got)
		}
		if got := ask[bool](t, d, `SELECT counted_at IS NOT NULL FROM mailings`); got != counted {
			t.Errorf("%s: counted %v", step, got)
		}
	}
	run(t, d, `UPDATE mailings SET counted_at = now()`)
	claim := storetest.ClaimOf(company, id, token, "C")
	claim.Recipient = nil
	storetest.Apply(t, d, claim)
	check("claimed", "QUEUED", "SENDING", true)
	failed := outbox.Transition{
		ID: id, Guard: outbox.GuardAttempt, Token: token, Status: email.Failed, ErrorCode: "SES_TIMEOUT", OutcomeUnknown: true, DeadLetter: true, Duration: time.Second,
		Events: []email.Event{{Type: email.EventOutcomeUnknown, At: time.Now()}, {Type: email.EventFailed, At: time.Now()}},
	}
	storetest.Apply(t, d, failed)
	check("failed", "FAILED", "SENDING", true)
	if !ask[bool](t, d, `SELECT outcome_unknown AND attempts = 1 AND last_attempt IS NOT NULL FROM mailing_entries`) {
		t.Error("the entry does not record the unknown outcome")
	}
	if ask[int](t, d, `SELECT count(*) FROM dead_letters WHERE mailing_id = (SELECT id FROM mailings)`) != 1 {
		t.Error("the dead letter does not name the mailing")
	}

	run(t, d, `UPDATE mailings SET status = 'COMPLETED', unknown = 1, completed_at = now()`)
	storetest.Apply(t, d, outbox.Transition{ID: id, Guard: outbox.GuardReplay, Status: email.Pending, Renew: time.Hour, Events: []email.Event{{Type: email.EventReplayed, At: time.Now()}}})
	check("replayed", "QUEUED", "SENDING", false)
	if ask[bool](t, d, `SELECT completed_at IS NOT NULL FROM mailings`) {
		t.Error("the mailing has a time of completion after the replay")
	}
	if ask[bool](t, d, `SELECT outcome_unknown FROM mailing_entries`) {
		t.Error("the waiting entry has an unknown outcome")
	}

	run(t, d, `UPDATE mailings SET counted_at = now()`)
	storetest.Apply(t, d, storetest.SentOf(id, token)) // the first attempt's late success
	check("sent", "SENT", "SENDING", true)
	if got := ask[string](t, d, `SELECT external_id FROM mailing_entries`); got != "ses-"+id.String() {
		t.Errorf("external id %s", got)
	}
}

// An entry whose email expired or was cancelled says whether the provider may have accepted the email, as that of a failed one.
func TestAdvance_EntryOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	for end, transition := range map[email.Status]func(uuid.UUID) outbox.Transition{email.Expired: expireOf, email.Cancelled: storetest.CancelOf} {
		for _, unknown := range []bool{true, false} {
			company, token := d.Company(t), uuid.New()
			id := d.Accept(t, company, nil)
			storetest.OfMailing(t, d, company, id)
			attempt := retryOf(id, token, 0)
			attempt.OutcomeUnknown = unknown
			storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), attempt)
			run(t, d, `UPDATE email_outbox SET expires_at = now() WHERE id = $1`, id)
			storetest.Apply(t, d, transition(id))
			if got := ask[bool](t, d, `SELECT outcome_unknown FROM mailing_entries WHERE id = $1 AND status = $2`, id, string(end)); got != unknown {
				t.Errorf("%s: the outcome of the entry is unknown: %v, want %v", end, got, unknown)
			}
		}
	}
}

// Another session has locked a PAUSED mailing. Its emails end without waiting for that lock, and
// the mailing is counted after the lock was released.
func TestAdvance_LockedPausedMailing(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, token := d.Company(t), uuid.New()
	id := d.Accept(t, company, nil)
	storetest.OfMailing(t, d, company, id)
	mailing := ask[uuid.UUID](t, d, `SELECT id FROM mailings`)
	claim := storetest.ClaimOf(company, id, token, "C")
	claim.Recipient = nil
	storetest.Apply(t, d, claim)
	run(t, d, `UPDATE mailings SET status = 'PAUSED', accepted = 1, counted_at = now(), updated_at = now() - interval '2 min'`)
	listed := func() bool {
		t.Helper()
		open, err := d.Store.OpenMailings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(open) == 1 && open[0].ID == mailing && open[0].Changed
	}
	if listed() {
		t.Error("it is listed although nothing has changed")
	}
	release := lock(t, d, `SELECT FROM mailings FOR UPDATE`)
	start := time.Now()
	done, err := d.Store.NewAdvancer().Advance(t.Context(), storetest.SentOf(id, token))
	if err != nil || !done.Applied {
		t.Errorf("the end of an email: %+v, %v after %s", done, err, time.Since(start))
	}
	if tally, err := d.Store.CountMailing(t.Context(), mailing); err != nil || tally.Applied || !listed() {
		t.Errorf("a count of the locked mailing: %+v, %v", tally, err)
	}
	release()
	if tally, err := d.Store.CountMailing(t.Context(), mailing); err != nil || !tally.Applied || tally.Sent != 1 || listed() {
		t.Errorf("a count: %+v, %v", tally, err)
	}
}

// A mailing is counted however long ago it was counted last: it may have been scheduled, held or paused for days. A rate
// that is nearly 0 is 0.
func TestCountMailing_Rate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		since string
		rate  float64
		want  func(rate float64) bool
	}{
		"after a second":    {since: "1 s", want: func(rate float64) bool { return rate > 0.05 && rate < 0.2 }},
		"after three hours": {since: "3 h", want: func(rate float64) bool { return rate == 0 }},
		"after years":       {since: "10 years", want: func(rate float64) bool { return rate == 0 }},
		"in the future":     {since: "-1 h", rate: 5, want: func(rate float64) bool { return rate == 5 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			m := storetest.NewMailing(company, nil)
			ingested(t, d, m, given(entry(2, "a@example.com", ""), entry(3, "b@example.com", "")))
			run(t, d, `UPDATE mailing_entries SET status = CASE line_no WHEN 2 THEN 'SENT' ELSE 'QUEUED' END`)
			run(t, d, `UPDATE mailings SET status = 'SENDING', expanded_at = now(), expanded_to = last_entry, rate = $1, counted_at = now() - $2::interval`, c.rate, c.since)
			tally, err := d.Store.CountMailing(t.Context(), m.ID)
			if err != nil || !tally.Applied || tally.Sent != 1 {
				t.Fatalf("count: %+v, %v", tally, err)
			}
			if rate := ask[float64](t, d, `SELECT rate FROM mailings`); !c.want(rate) {
				t.Errorf("rate: %v", rate)
			}
		})
	}
}
