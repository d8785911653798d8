package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/feedback"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
)

// deliveryReport returns a Delivery event of the attempt with a new notification id.
func deliveryReport(company, id, token uuid.UUID, change func(*feedback.Feedback)) feedback.Feedback {
	f := feedback.Feedback{
		NotificationID: uuid.NewString(), Kind: "Delivery", SESMessageID: "ses-" + id.String(),
		OutboxID: id, AttemptID: token, CompanyID: company, OccurredAt: time.Now().UTC(),
		Event: email.EventDelivered, Metadata: map[string]any{"recipients": []string{"ana@example.com"}},
		Masked: map[string]any{"recipients": []string{"a***@e***.com"}},
	}
	if change != nil {
		change(&f)
	}
	return f
}

func recordFeedback(tb testing.TB, d storetest.Database, f feedback.Feedback) feedback.Result {
	tb.Helper()
	r, err := d.Store.RecordFeedback(tb.Context(), f)
	if err != nil {
		tb.Fatalf("record feedback: %v", err)
	}
	return r
}

// story formats the timeline as one line.
func story(tb testing.TB, d storetest.Database, id uuid.UUID) string {
	tb.Helper()
	events, err := d.Store.Timeline(tb.Context(), id)
	if err != nil {
		tb.Fatal(err)
	}
	var types []string
	for i, e := range events {
		if e.Seq != i+1 {
			tb.Errorf("event %d has the number %d", i+1, e.Seq)
		}
		types = append(types, string(e.Type))
	}
	return strings.Join(types, " ")
}

const tried = "RECEIVED VALIDATED SENT_ATTEMPT "

// An SES event that proves that an attempt was accepted makes the email SENT, whatever its status was, and its outcome is
// known then.
func TestRecordFeedback_MakesTheEmailSent(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	unknown := func(id, token uuid.UUID, to email.Status, events ...email.Event) outbox.Transition {
		tr := storetest.EndOf(id, token, to, append([]email.Event{storetest.Event(email.EventOutcomeUnknown, nil)}, events...)...)
		tr.OutcomeUnknown = true
		return tr
	}
	tests := []struct {
		name string
		move func(id, token uuid.UUID) []outbox.Transition
		want string
	}{
		{"before the worker's own commit", func(_, _ uuid.UUID) []outbox.Transition { return nil }, tried + "SENT DELIVERED"},
		{"sent", func(id, token uuid.UUID) []outbox.Transition { return []outbox.Transition{storetest.SentOf(id, token)} }, tried + "SENT DELIVERED"},
		{"unknown, to be tried again", func(id, token uuid.UUID) []outbox.Transition {
			return []outbox.Transition{unknown(id, token, email.RetryScheduled, storetest.Event(email.EventRetryScheduled, nil))}
		}, tried + "OUTCOME_UNKNOWN RETRY_SCHEDULED SENT DELIVERED"},
		{"unknown, given up", func(id, token uuid.UUID) []outbox.Transition {
			tr := unknown(id, token, email.Failed, storetest.Event(email.EventFailed, nil))
			tr.DeadLetter, tr.ErrorCode = true, email.CodeOutcomeUnknown
			return []outbox.Transition{tr}
		}, tried + "OUTCOME_UNKNOWN FAILED SENT DELIVERED"},
		{"unknown, resting", func(id, token uuid.UUID) []outbox.Transition {
			return []outbox.Transition{unknown(id, token, email.OutcomeUnknown)}
		}, tried + "OUTCOME_UNKNOWN SENT DELIVERED"},
		{"tried again already", func(id, token uuid.UUID) []outbox.Transition {
			return []outbox.Transition{unknown(id, token, email.RetryScheduled, storetest.Event(email.EventRetryScheduled, nil)), storetest.ClaimOf(company, id, uuid.New(), "C")}
		}, tried + "OUTCOME_UNKNOWN RETRY_SCHEDULED " + tried + "SENT DELIVERED"},
		{"cancelled meanwhile", func(id, token uuid.UUID) []outbox.Transition {
			return []outbox.Transition{unknown(id, token, email.RetryScheduled, storetest.Event(email.EventRetryScheduled, nil)), storetest.CancelOf(id)}
		}, tried + "OUTCOME_UNKNOWN RETRY_SCHEDULED CANCELLED SENT DELIVERED"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			id, token := d.Accept(t, company, nil), uuid.New()
			storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"))
			storetest.Apply(t, d, tt.move(id, token)...)
			if r := recordFeedback(t, d, deliveryReport(company, id, token, nil)); r.Repeated || r.Unmatched || r.Duplicate {
				t.Fatalf("%+v", r)
			}
			if got := story(t, d, id); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			row := readOutbox(t, d, id)
			if row.Status != string(email.Sent) || row.OutcomeUnknown || !row.Final || row.Leased {
				t.Errorf("%+v", row)
			}
			shown, err := d.Store.FindEmail(t.Context(), company, id)
			if err != nil || *shown.SESMessageID != "ses-"+id.String() || shown.ErrorCode != nil || shown.SentAt == nil {
				t.Errorf("%+v, %v", shown, err)
			}
			if n := ask[int](t, d, `SELECT count(*) FROM dead_letters WHERE outbox_id = $1 AND resolved_at IS NULL`, id); n != 0 {
				t.Errorf("%d open dead letters", n)
			}
			if n := ask[int](t, d, `SELECT count(*) FROM ses_events WHERE outbox_id = $1 AND attempt_id = $2 AND applied_at IS NOT NULL`, id, token); n != 1 {
				t.Errorf("%d applied notifications", n)
			}
		})
	}
}

// A notification without an event of its own makes the outcome of an email known that was sent by a later attempt.
func TestRecordFeedback_WithoutAnEvent(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id, first, second := d.Accept(t, company, nil), uuid.New(), uuid.New()
	unknown := storetest.EndOf(id, first, email.RetryScheduled, storetest.Event(email.EventOutcomeUnknown, nil), storetest.Event(email.EventRetryScheduled, nil))
	unknown.OutcomeUnknown = true
	storetest.Apply(t, d, storetest.ClaimOf(company, id, first, "C"), unknown, storetest.ClaimOf(company, id, second, "C"), storetest.SentOf(id, second))
	if row := readOutbox(t, d, id); !row.OutcomeUnknown {
		t.Fatalf("%+v", row)
	}
	r := recordFeedback(t, d, deliveryReport(company, id, second, func(f *feedback.Feedback) { f.Kind, f.Event, f.Metadata = "Send", "", nil }))
	if row := readOutbox(t, d, id); r.Unmatched || row.OutcomeUnknown || row.Status != string(email.Sent) {
		t.Errorf("%+v, %+v", r, row)
	}
	if got, want := story(t, d, id), tried+"OUTCOME_UNKNOWN RETRY_SCHEDULED "+tried+"SENT"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The worker reports its result after the SES event: nothing is written twice, and the worker's result is recognized as that
// of its own attempt.
func TestRecordFeedback_ThenTheWorkersAnswer(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for _, answer := range []func(id, token uuid.UUID) outbox.Transition{storetest.SentOf, storetest.FailedOf, func(id, token uuid.UUID) outbox.Transition { return retryOf(id, token, 0) }} {
		id, token := d.Accept(t, company, nil), uuid.New()
		storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"))
		recordFeedback(t, d, deliveryReport(company, id, token, nil))
		got, err := d.Store.Advance(t.Context(), answer(id, token))
		if err != nil || got.Applied || !got.SameToken || got.Status != email.Sent {
			t.Errorf("%+v, %v", got, err)
		}
		if got := story(t, d, id); got != tried+"SENT DELIVERED" {
			t.Errorf("%s", got)
		}
	}
}

func TestRecordFeedback_OnceOutOfOrderAndByTwoWays(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id, token := d.Accept(t, company, nil), uuid.New()
	storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), storetest.SentOf(id, token))
	opened := deliveryReport(company, id, token, func(f *feedback.Feedback) {
		f.Kind, f.Event, f.Metadata = "Open", email.EventOpened, map[string]any{"at": 1}
	})
	delivered := deliveryReport(company, id, token, nil)
	accepted := deliveryReport(company, id, token, func(f *feedback.Feedback) { f.Kind, f.Event, f.Metadata = "Send", "", nil })
	other := delivered
	other.NotificationID = uuid.NewString() // of another topic
	for i, f := range []feedback.Feedback{opened, delivered, accepted, opened, delivered, other, accepted} {
		if r := recordFeedback(t, d, f); r.Repeated != (i >= 3 && i != 5) || r.Unmatched {
			t.Errorf("notification %d: %+v", i, r)
		}
	}
	if got := story(t, d, id); got != tried+"SENT OPENED DELIVERED" {
		t.Error(got)
	}
}

// The same notification, and others of the same email, recorded concurrently.
func TestRecordFeedback_AtTheSameTime(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id, token := d.Accept(t, company, nil), uuid.New()
	storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"))
	var all []feedback.Feedback
	for n := range 6 {
		f := deliveryReport(company, id, token, func(f *feedback.Feedback) { f.Metadata = map[string]any{"n": n} })
		all = append(all, f, f)
	}
	errs := make(chan error, len(all)+1)
	for _, f := range all {
		go func() {
			_, err := recordAgain(t, d, f)
			errs <- err
		}()
	}
	go func() {
		_, err := d.Store.Advance(t.Context(), storetest.SentOf(id, token))
		errs <- err
	}()
	for range len(all) + 1 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got, want := story(t, d, id), tried+"SENT"+strings.Repeat(" DELIVERED", 6); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// recordAgain records a notification until it is recorded, as its deliveries do: on a busy machine a wait for a lock may
// take too long.
func recordAgain(t *testing.T, d storetest.Database, f feedback.Feedback) (feedback.Result, error) {
	var r feedback.Result
	var err error
	for waited := range waittest.Rounds() {
		if r, err = d.Store.RecordFeedback(t.Context(), f); !errors.Is(err, store.ErrUnavailable) || waited > waittest.Limit {
			break
		}
	}
	return r, err
}

// Notifications about many emails at the same time, several about each, are recorded in fewer commits than there are
// notifications, each with its own result.
func TestRecordFeedback_InGroups(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	type emailOf struct{ company, id, token uuid.UUID }
	var emails []emailOf
	for n := range 40 {
		e := emailOf{company: company, token: uuid.New()}
		if n%2 == 1 {
			e.company = other
		}
		e.id = d.Accept(t, e.company, nil)
		storetest.Apply(t, d, storetest.ClaimOf(e.company, e.id, e.token, "C"))
		if n%4 < 2 {
			storetest.Apply(t, d, storetest.SentOf(e.id, e.token))
		}
		emails = append(emails, e)
	}
	type outcome struct {
		kind   string
		result feedback.Result
		err    error
	}
	outcomes := make(chan outcome)
	recorded := 0
	record := func(kind string, f feedback.Feedback) {
		recorded++
		f.Kind = kind
		go func() {
			r, err := recordAgain(t, d, f)
			outcomes <- outcome{kind, r, err}
		}()
	}
	for _, e := range emails {
		record("Send", deliveryReport(e.company, e.id, e.token, func(f *feedback.Feedback) { f.Event, f.Metadata = "", nil }))
		record("Delivery", deliveryReport(e.company, e.id, e.token, nil))
		record("foreign company", deliveryReport(uuid.New(), e.id, e.token, nil))
		record("unknown email", deliveryReport(e.company, uuid.New(), e.token, nil))
		record("no email", deliveryReport(uuid.Nil, uuid.Nil, uuid.Nil, nil))
	}
	for range recorded {
		o := <-outcomes
		ours := o.kind == "Send" || o.kind == "Delivery"
		if o.err != nil || o.result.Repeated || o.result.Unmatched == ours || o.result.Duplicate {
			t.Errorf("%s: %+v, %v", o.kind, o.result, o.err)
		}
	}
	for _, e := range emails {
		if got := story(t, d, e.id); got != tried+"SENT DELIVERED" {
			t.Errorf("%s", got)
		}
	}
	stored := ask[int](t, d, `SELECT count(*) FROM ses_events`)
	if applied := ask[int](t, d, `SELECT count(*) FROM ses_events WHERE applied_at IS NOT NULL`); stored != 2*len(emails) || applied != stored {
		t.Errorf("%d notifications are stored and %d applied, want %d", stored, applied, 2*len(emails))
	}
	commits := ask[int](t, d, `SELECT count(DISTINCT xmin::text) FROM ses_events`)
	if commits >= stored {
		t.Errorf("%d notifications in %d commits", stored, commits)
	}
	t.Logf("%d notifications in %d commits", stored, commits)
}

// Another transaction holds all emails of one company: notifications about them wait for it or are refused until their
// delivery is repeated, and those of another company are recorded meanwhile.
func TestRecordFeedback_LockedEmails(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	claimed := func(company uuid.UUID) feedback.Feedback {
		id, token := d.Accept(t, company, nil), uuid.New()
		storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"))
		return deliveryReport(company, id, token, nil)
	}
	var held, free []feedback.Feedback
	for range 30 {
		held, free = append(held, claimed(company)), append(free, claimed(other))
	}
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM email_outbox WHERE company_id = $1 FOR UPDATE`, company); err != nil {
		t.Fatal(err)
	}
	record := func(all []feedback.Feedback) chan error {
		errs := make(chan error, len(all))
		for _, f := range all {
			go func() {
				_, err := d.Store.RecordFeedback(t.Context(), f)
				errs <- err
			}()
		}
		return errs
	}
	blocked, passing := record(held), record(free)
	for range free {
		if err := <-passing; err != nil {
			t.Errorf("of the other company: %v", err)
		}
	}
	if n := ask[int](t, d, `SELECT count(*) FROM ses_events e JOIN email_outbox o ON o.id = e.outbox_id WHERE o.company_id = $1`, company); n != 0 {
		t.Fatalf("%d notifications about locked emails are recorded", n)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for range held {
		if err := <-blocked; err != nil && !store.IsOutage(err) {
			t.Error(err)
		}
	}
	for _, f := range held { // delivered again
		recordFeedback(t, d, f)
		if got := story(t, d, f.OutboxID); got != tried+"SENT DELIVERED" {
			t.Error(got)
		}
	}
}
