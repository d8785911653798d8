package reputation_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/reputation"
	"email-gateway/shared/store/storetest"
)

// TestCheck_Thresholds: at a threshold the guard acts, one event or one email below it does not.
func TestCheck_Thresholds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const minute, hours = time.Minute, 5 * time.Hour
	for name, test := range map[string]struct {
		sent               int
		ago                time.Duration
		complaints, hard   int
		pauses, warns      reputation.Rule
		softBounces, trash int
	}{
		"one bounce of 13":             {sent: 13, ago: minute, hard: 1},
		"all of 13 bounce":             {sent: 13, ago: minute, hard: 13},
		"199 emails":                   {sent: 199, ago: minute, complaints: 199, hard: 199},
		"4 complaints of 200":          {sent: 200, ago: minute, complaints: 4},
		"5 complaints of 200":          {sent: 200, ago: minute, complaints: 5, pauses: reputation.Complaints1h},
		"5 complaints of 501":          {sent: 501, ago: minute, complaints: 5, warns: reputation.Complaints1h},
		"5 complaints of 1001":         {sent: 1001, ago: minute, complaints: 5},
		"19 bounces of 200":            {sent: 200, ago: minute, hard: 19},
		"20 bounces of 200":            {sent: 200, ago: minute, hard: 20, pauses: reputation.Bounces1h},
		"20 bounces of 201":            {sent: 201, ago: minute, hard: 20, warns: reputation.Bounces1h},
		"soft bounces do not count":    {sent: 200, ago: minute, softBounces: 200},
		"feedback that is no judgment": {sent: 200, ago: minute, trash: 200},
		"5 complaints of 200, 5 h":     {sent: 200, ago: hours, complaints: 5},
		"9 complaints of 1000, 5 h":    {sent: 1000, ago: hours, complaints: 9},
		"10 complaints of 1000, 5 h":   {sent: 1000, ago: hours, complaints: 10, pauses: reputation.Complaints24h},
		"10 complaints of 4000, 5 h":   {sent: 4000, ago: hours, complaints: 10, warns: reputation.Complaints24h},
		"50 bounces of 1000, 5 h":      {sent: 1000, ago: hours, hard: 50, pauses: reputation.Bounces24h},
		"50 bounces of 2000, 5 h":      {sent: 2000, ago: hours, hard: 50, warns: reputation.Bounces24h},
		"49 bounces of 1000, 5 h":      {sent: 1000, ago: hours, hard: 49},
		"last week":                    {sent: 1000, ago: 7 * 24 * time.Hour, complaints: 1000, hard: 1000},
	} {
		company := b.Company(t)
		ids := b.sent(t, company, test.sent, test.ago)
		b.feedback(t, "Complaint", complaint, ids[:test.complaints]...)
		b.feedback(t, "Bounce", hardBounce, ids[:test.hard]...)
		b.feedback(t, "Bounce", `{"bounceType": "Transient"}`, ids[:test.softBounces]...)
		for _, kind := range []string{"OnAccountSuppressionList", "OnTenantSuppressionList", "EmailValidationSuppressed"} {
			b.feedback(t, "Bounce", `{"bounceType": "Permanent", "bounceSubType": "`+kind+`"}`, ids[:test.trash]...)
			b.feedback(t, "Complaint", `{"complaintFeedbackType": "abuse", "complaintSubType": "`+kind+`"}`, ids[:test.trash]...)
		}
		b.feedback(t, "Complaint", `{"complaintFeedbackType": "not-spam"}`, ids[:test.trash]...)
		b.feedback(t, "Delivery", `{}`, ids[:test.trash]...)
		done := b.check(t, company)
		var pauses, warns reputation.Rule
		if done.Paused != nil {
			pauses = done.Paused.Rule
		}
		if len(done.Warnings) > 0 {
			warns = done.Warnings[0].Rule
		}
		if pauses != test.pauses || warns != test.warns || len(done.Warnings) > 1 {
			t.Errorf("%s: paused by %q, want %q; warned by %q, want %q: %+v", name, pauses, test.pauses, warns, test.warns, done)
		}
		if paused := b.paused(t, company); paused != (test.pauses != "") {
			t.Errorf("%s: paused: %v", name, paused)
		}
		var want []email.EventType
		switch {
		case test.pauses != "":
			want = []email.EventType{event.MailingsPaused}
		case test.warns != "":
			want = []email.EventType{event.ReputationWarning}
		}
		if got := b.events(t, company); !slices.Equal(got, want) {
			t.Errorf("%s: events %v, want %v", name, got, want)
		}
	}
}

// TestCheck_EmailCountsOnce: feedback that is repeated, or about several recipients of one email, counts
// once; so do sends, however often a company is checked.
func TestCheck_EmailCountsOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.sent(t, b.company, 150, time.Minute)
	for range 6 {
		b.feedback(t, "Complaint", complaint, ids[:4]...)
		b.feedback(t, "Bounce", hardBounce, ids[:19]...)
		b.check(t, b.company)
		b.sent(t, b.company, 25, time.Minute)
	}
	b.check(t, b.company)
	status, err := b.rep.Find(t.Context(), b.company)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range status.Rules {
		want := reputation.Measure{Sent: 300, Events: 19}
		if r.Rule == reputation.Complaints1h || r.Rule == reputation.Complaints24h {
			want.Events = 4
		}
		if r.Measured != want {
			t.Errorf("%s: %+v, want %+v", r.Rule, r.Measured, want)
		}
	}
	if b.paused(t, b.company) {
		t.Error("paused")
	}
}

// TestCheck_DelayedFeedback: a batch of feedback about emails of hours ago does not distort the rate of a
// quiet hour.
func TestCheck_DelayedFeedback(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	old := b.sent(t, b.company, 4_000, 10*time.Hour)
	b.sent(t, b.company, 200, time.Minute)
	b.feedback(t, "Complaint", complaint, old[:5]...)
	b.feedback(t, "Bounce", hardBounce, old[:99]...)
	if done := b.check(t, b.company); done.Paused != nil || len(done.Warnings) > 0 {
		t.Errorf("%+v", done)
	}
}

// TestCheck_MoreSends: too few emails for a rate. When more are sent the company is checked again, without
// new feedback.
func TestCheck_MoreSends(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.feedback(t, "Complaint", complaint, b.sent(t, b.company, 100, time.Minute)[:10]...)
	b.check(t, b.company)
	b.sent(t, b.company, 100, time.Second)
	if due, err := b.rep.Due(t.Context()); err != nil || len(due) != 0 {
		t.Fatalf("due at once: %v, %v", due, err)
	}
	b.Run(t, `UPDATE company_reputation SET check_at = now()`)
	due, err := b.rep.Due(t.Context())
	if err != nil || !slices.Equal(due, []uuid.UUID{b.company}) {
		t.Fatalf("due: %v, %v", due, err)
	}
	if done := b.check(t, b.company); done.Paused == nil {
		t.Errorf("not paused: %+v", done)
	}
}

// TestCheck_WarnsOnce: a rule warns once in its window.
func TestCheck_WarnsOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.sent(t, b.company, 1000, 2*time.Hour)
	// 70 of 2,000 are 3.5 %; the guard warns at 2.5 % and pauses at 5 %.
	ids = append(ids, b.sent(t, b.company, 1000, 2*time.Hour)...)
	b.feedback(t, "Bounce", hardBounce, ids[:70]...)
	for i, want := range []int{1, 0, 1} {
		if i == 2 {
			b.Run(t, `UPDATE company_reputation SET warnings = jsonb_build_object('bounces_24h', now() - interval '25 hours')`)
		}
		b.feedback(t, "Bounce", hardBounce, ids[100+i])
		if done := b.check(t, b.company); len(done.Warnings) != want || done.Paused != nil {
			t.Errorf("check %d: %+v, want %d warnings", i, done, want)
		}
	}
	if got := b.events(t, b.company); !slices.Equal(got, []email.EventType{event.ReputationWarning, event.ReputationWarning}) {
		t.Errorf("events %v, want two warnings", got)
	}
}

// TestResume: only emails that are sent afterwards count.
func TestResume(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bad := func(late int) (ids []uuid.UUID) {
		ids = b.sent(t, b.company, 300, 0)
		b.feedback(t, "Complaint", complaint, ids[:50-late]...)
		return ids[50-late : 50]
	}
	late := bad(20)
	if done := b.check(t, b.company); done.Paused == nil {
		t.Fatal("not paused")
	}
	if n, err := b.rep.CountPaused(t.Context()); err != nil || n != 1 {
		t.Errorf("%d companies paused, %v", n, err)
	}
	resumed, err := b.rep.Resume(t.Context(), storetest.Operator(), b.company)
	if err != nil || !resumed || b.paused(t, b.company) {
		t.Fatalf("resumed: %v, %v", resumed, err)
	}
	if again, err := b.rep.Resume(t.Context(), storetest.Operator(), b.company); err != nil || again {
		t.Errorf("resumed twice: %v, %v", again, err)
	}
	if n := storetest.Ask[int](t, b.Database, `SELECT count(*) FROM operator_audit WHERE action = 'company.resume-mailings' AND reason = 'a test needs it'`); n != 1 {
		t.Errorf("%d audit entries", n)
	}
	b.feedback(t, "Complaint", complaint, late...)
	b.sent(t, b.company, 300, 0)
	if done := b.check(t, b.company); done.Paused != nil || len(done.Warnings) > 0 {
		t.Errorf("old feedback counts: %+v", done)
	}
	bad(0)
	if done := b.check(t, b.company); done.Paused == nil || done.Paused.Sent != 600 || done.Paused.Events != 50 {
		t.Errorf("new feedback does not count: %+v", done.Paused)
	}
	want := []email.EventType{event.MailingsPaused, event.MailingsResumed, event.MailingsPaused}
	if got := b.events(t, b.company); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if _, err := b.rep.Resume(t.Context(), storetest.Operator(), uuid.New()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no company: %v", err)
	}
}

// TestCheck_Locked: a locked row of one company fails its check after a second, and delays no other
// company; a check that runs elsewhere is skipped.
func TestCheck_Locked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other, suspended := b.Company(t), b.Company(t)
	for _, company := range []uuid.UUID{b.company, other, suspended} {
		b.feedback(t, "Complaint", complaint, b.sent(t, company, 300, time.Minute)[:50]...)
	}
	tx, err := b.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM companies WHERE id = $1 FOR UPDATE`, b.company); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), `UPDATE companies SET suspended_at = now() WHERE id = $1`, suspended); err != nil {
		t.Fatal(err)
	}
	// company_reputation refers to companies, so one check waits for the lock before it inserts its row, and
	// the other when it pauses the mailings.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, company := range []uuid.UUID{b.company, suspended} {
		if done, err := b.rep.Check(ctx, company); err == nil || ctx.Err() != nil {
			t.Errorf("locked: %+v, %v", done, err)
		}
	}
	if done := b.check(t, other); done.Paused == nil {
		t.Errorf("the other company: %+v", done)
	}
	if due, err := b.rep.Due(t.Context()); err != nil || len(due) != 2 || !slices.Contains(due, b.company) || !slices.Contains(due, suspended) {
		t.Errorf("due: %v, %v", due, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	held, err := b.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback() }()
	if _, err := held.ExecContext(t.Context(), `INSERT INTO company_reputation (company_id) VALUES ($1)`, b.Company(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := held.ExecContext(t.Context(), `SELECT FROM company_reputation WHERE company_id = $1 FOR UPDATE`, other); err != nil {
		t.Fatal(err)
	}
	if done := b.check(t, other); !done.Skipped {
		t.Errorf("checked beside another process: %+v", done)
	}
	if done := b.check(t, b.company); done.Paused == nil {
		t.Errorf("after the lock: %+v", done)
	}
}

// TestSet: rules and the switch of one company, and those of the installation.
func TestSet(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.sent(t, b.company, 300, time.Minute)
	off := reputation.Settings{Guard: reputation.Off}
	strict := reputation.Settings{
		Guard: reputation.Default, Rules: map[reputation.Rule]*reputation.Thresholds{reputation.Complaints1h: {Warn: 1000, Pause: 2000, MinSent: 100, MinEvents: 1}},
	}
	if err := b.rep.Set(t.Context(), storetest.Operator(), b.company, off); err != nil {
		t.Fatal(err)
	}
	b.feedback(t, "Bounce", hardBounce, ids...)
	if done := b.check(t, b.company); done.Paused != nil {
		t.Errorf("off: %+v", done)
	}
	other := b.Company(t)
	b.feedback(t, "Complaint", complaint, b.sent(t, other, 300, time.Minute)[0])
	b.check(t, other)
	if err := b.rep.Set(t.Context(), storetest.Operator(), other, strict); err != nil {
		t.Fatal(err)
	}
	if due, err := b.rep.Due(t.Context()); err != nil || !slices.Equal(due, []uuid.UUID{other}) {
		t.Errorf("due after a change: %v, %v", due, err)
	}
	if done := b.check(t, other); done.Paused == nil {
		t.Errorf("strict: %+v", done)
	}
	audited := func() int {
		return storetest.Ask[int](t, b.Database, `SELECT count(*) FROM operator_audit WHERE action = 'company.reputation'`)
	}
	if n := audited(); n != 2 {
		t.Errorf("%d audit entries, want 2", n)
	}
	if err := b.rep.Set(t.Context(), storetest.Operator(), other, strict); err != nil || audited() != 2 {
		t.Errorf("no change: %v, %d entries", err, audited())
	}
	bad := reputation.Settings{Guard: reputation.On, Rules: map[reputation.Rule]*reputation.Thresholds{reputation.Bounces1h: {Warn: 3, Pause: 2, MinSent: 1, MinEvents: 1}}}
	if err := b.rep.Set(t.Context(), storetest.Operator(), other, bad); !errors.Is(err, reputation.ErrRule) {
		t.Errorf("bad thresholds: %v", err)
	}
	status, err := b.rep.Find(t.Context(), other)
	if err != nil || status.OwnEnabled || !status.Enabled || status.PausedAt == nil || !status.Rules[0].Own || status.Rules[1].Own || status.Rules[0].String() != "0.1,0.2,100,1" {
		t.Errorf("%+v, %v", status, err)
	}
	if err := b.rep.SetDefaults(t.Context(), false, map[reputation.Rule]reputation.Thresholds{
		reputation.Complaints1h: {1, 2, 3, 4}, reputation.Complaints24h: {5, 6, 7, 8}, reputation.Bounces1h: {9, 10, 11, 12}, reputation.Bounces24h: {13, 14, 15, 16},
	}); err != nil {
		t.Fatal(err)
	}
	status, err = b.rep.Find(t.Context(), b.Company(t))
	if err != nil || status.Enabled || status.Rules[3].Thresholds != (reputation.Thresholds{Warn: 13, Pause: 14, MinSent: 15, MinEvents: 16}) {
		t.Errorf("defaults: %+v, %v", status, err)
	}
}

// TestClean: what no window needs is deleted, and a company that gets feedback again is measured anew.
func TestClean(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.sent(t, b.company, 300, time.Minute)
	b.feedback(t, "Complaint", complaint, ids[:2]...)
	b.check(t, b.company)
	b.Run(t, `UPDATE reputation_feedback SET sent_at = now() - interval '26 hours'`)
	b.Run(t, `UPDATE company_reputation SET checked_at = now() - interval '26 hours'`)
	if n, err := b.rep.Clean(t.Context(), 100); err != nil || n != 2 {
		t.Fatalf("%d, %v", n, err)
	}
	if n := storetest.Ask[int](t, b.Database, `SELECT count(*) FROM reputation_sends`); n != 0 {
		t.Errorf("%d rows of sends left", n)
	}
	b.feedback(t, "Complaint", complaint, ids[2:52]...)
	if done := b.check(t, b.company); done.Paused == nil || done.Paused.Sent != 300 || done.Paused.Events != 50 {
		t.Errorf("measured anew: %+v", done.Paused)
	}
}
