package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/feedback"
	"email-gateway/shared/store/installation"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/suppression"
)

func TestRecordFeedback_NotOurs(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, stranger := d.Company(t), d.Company(t)
	id, token := d.Accept(t, company, nil), uuid.New()
	storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), storetest.FailedOf(id, token))
	before := story(t, d, id)
	for name, change := range map[string]func(*feedback.Feedback){
		"another email":   func(f *feedback.Feedback) { f.OutboxID = uuid.New() },
		"another company": func(f *feedback.Feedback) { f.CompanyID = stranger },
		"no tags":         func(f *feedback.Feedback) { f.OutboxID, f.AttemptID, f.CompanyID = uuid.Nil, uuid.Nil, uuid.Nil },
	} {
		f := deliveryReport(company, id, token, change)
		f.Suppress, f.Addresses = suppression.Bounced, []string{"ana@example.com"}
		for range 2 { // a queue may deliver it again
			if r := recordFeedback(t, d, f); !r.Unmatched || r.Repeated {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
	if n := ask[int](t, d, `SELECT count(*) FROM ses_events`); n != 0 {
		t.Errorf("%d notifications are stored", n)
	}
	if after := story(t, d, id); after != before || readOutbox(t, d, id).Status != "FAILED" {
		t.Errorf("the timeline changed from %s to %s", before, after)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM suppressions`); n != 0 {
		t.Errorf("%d suppressions", n)
	}
}

// A copy of a database has the ids of the original's emails: events of what the original has sent since then are not applied.
func TestRecordFeedback_CopyOfTheDatabase(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	tried, attemptBefore := d.Accept(t, company, nil), uuid.New()
	storetest.Apply(t, d, storetest.ClaimOf(company, tried, attemptBefore, "C"))
	detached, err := installation.New(d.Store.DB()).Detach(t.Context(), storetest.Because("restore drill"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		sender      uuid.UUID
		id, attempt uuid.UUID
		applied     bool
	}{
		"sent by the copy":                      {detached.ID, d.Accept(t, company, nil), uuid.New(), true},
		"sent by the original":                  {detached.Before, d.Accept(t, company, nil), uuid.New(), false},
		"sent by the original, before the copy": {detached.Before, tried, attemptBefore, true},
		"sent without the tag":                  {uuid.Nil, d.Accept(t, company, nil), uuid.New(), true},
	} {
		f := deliveryReport(company, tt.id, tt.attempt, func(f *feedback.Feedback) { f.InstallationID = tt.sender })
		if r := recordFeedback(t, d, f); r.Unmatched == tt.applied {
			t.Errorf("%s: %+v", name, r)
		}
		if sent := readOutbox(t, d, tt.id).Status == string(email.Sent); sent != tt.applied {
			t.Errorf("%s: SENT is %v", name, sent)
		}
	}
}

func TestRecordFeedback_PurgedRow(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for name, end := range map[string]func(id, token uuid.UUID) outbox.Transition{"sent": storetest.SentOf, "failed": storetest.FailedOf} {
		run(t, d, `DELETE FROM suppressions`)
		id, token := d.Accept(t, company, nil), uuid.New()
		storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), end(id, token))
		run(t, d, `DELETE FROM email_outbox WHERE id = $1`, id)
		f := deliveryReport(company, id, token, func(f *feedback.Feedback) {
			f.Event, f.Suppress, f.Addresses = email.EventBounced, suppression.Bounced, []string{"ANA@example.com", "eve@example.com"}
		})
		if r := recordFeedback(t, d, f); r.Unmatched || r.Suppressed != 1 {
			t.Errorf("%s: %+v", name, r)
		}
		shown, err := d.Store.FindEmail(t.Context(), company, id)
		if err != nil || shown.Status != email.Sent || shown.SentAt == nil || shown.ErrorCode != nil {
			t.Errorf("%s: %+v, %v", name, shown, err)
		}
		if got := story(t, d, id); !strings.HasSuffix(got, "SENT BOUNCED") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestRecordFeedback_Suppresses(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id, token := d.Accept(t, company, func(e *outbox.NewEmail) {
		e.Job.To, e.Job.CC, e.Job.BCC = "Ana@Example.com", []string{"bia@example.com"}, []string{"caio@example.com"}
	}), uuid.New()
	storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), storetest.SentOf(id, token))
	bounce := deliveryReport(company, id, token, func(f *feedback.Feedback) {
		f.Kind, f.Event, f.Suppress, f.Note = "Bounce", email.EventBounced, suppression.Bounced, "Permanent/General"
		f.Addresses = []string{"caio@example.com", "ana@example.com", "ANA@example.com", "somebody@else.example"}
	})
	complaint := deliveryReport(company, id, token, func(f *feedback.Feedback) {
		f.Kind, f.Event, f.Suppress, f.Addresses = "Complaint", email.EventComplained, suppression.Complained, []string{"bia@example.com"}
	})
	if r := recordFeedback(t, d, bounce); r.Suppressed != 2 {
		t.Errorf("bounce: %+v", r)
	}
	if r := recordFeedback(t, d, complaint); r.Suppressed != 1 {
		t.Errorf("complaint: %+v", r)
	}
	recordFeedback(t, d, deliveryReport(company, id, token, func(f *feedback.Feedback) { f.Event, f.Addresses = email.EventBounced, []string{"bia@example.com"} }))
	list, err := d.Store.Suppressions(t.Context(), company, suppression.Filter{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list {
		note := ""
		if s.Note != nil {
			note = *s.Note
		}
		got = append(got, fmt.Sprint(s.Address, " ", s.Reason, " ", note))
	}
	want := []string{"ana@example.com BOUNCE Permanent/General", "bia@example.com COMPLAINT ", "caio@example.com BOUNCE Permanent/General"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	events, err := d.Store.Timeline(t.Context(), id)
	if err != nil || !strings.Contains(string(events[4].Metadata), `"suppressed": ["ana@example.com", "caio@example.com"]`) {
		t.Errorf("%s, %v", events[4].Metadata, err)
	}
}

// An email with an unknown outcome was sent again, and SES has accepted both attempts.
func TestRecordFeedback_ConfirmsADuplicate(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id, first, second := d.Accept(t, company, nil), uuid.New(), uuid.New()
	lost := retryOf(id, first, 0)
	lost.Events = slices.Insert(lost.Events, 0, storetest.Event(email.EventOutcomeUnknown, nil))
	lost.OutcomeUnknown, lost.PossibleDuplicate = true, true
	storetest.Apply(t, d, storetest.ClaimOf(company, id, first, "C"), lost, storetest.ClaimOf(company, id, second, "C"), storetest.SentOf(id, second))
	old := func(kind string, e email.EventType) feedback.Feedback {
		return deliveryReport(company, id, first, func(f *feedback.Feedback) { f.Kind, f.Event, f.SESMessageID = kind, e, "ses-other" })
	}
	counted := 0
	for _, f := range []feedback.Feedback{deliveryReport(company, id, second, nil), old("Send", ""), old("Delivery", email.EventDelivered), old("Open", email.EventOpened)} {
		if recordFeedback(t, d, f).Duplicate {
			counted++
		}
	}
	const want = tried + "OUTCOME_UNKNOWN RETRY_SCHEDULED " + tried + "SENT DELIVERED DUPLICATE_CONFIRMED OPENED"
	if got := story(t, d, id); counted != 1 || got != want {
		t.Errorf("%d duplicates: %s, want %s", counted, got, want)
	}
	if row := readOutbox(t, d, id); row.OutcomeUnknown || !row.Duplicate {
		t.Errorf("%+v", row)
	}
}

// If an email leaves a final status, the entry of its mailing does too.
func TestRecordFeedback_Entry(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id, token := d.Accept(t, company, nil), uuid.New()
	mailing := d.Mailing(t, company, 1, nil)
	run(t, d, `UPDATE mailing_entries SET id = $1, status = 'QUEUED' WHERE mailing_id = $2`, id, mailing)
	run(t, d, `UPDATE email_outbox SET lane_id = (SELECT id FROM dispatch_lanes WHERE mailing_id = $2) WHERE id = $1`, id, mailing)
	given := storetest.FailedOf(id, token)
	given.OutcomeUnknown = true
	storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), given)
	recordFeedback(t, d, deliveryReport(company, id, token, nil))
	if n := ask[int](t, d, `SELECT count(*) FROM mailing_entries WHERE id = $1 AND status = 'SENT' AND NOT outcome_unknown`, id); n != 1 {
		t.Error("the entry of the mailing was not updated")
	}
	if n := ask[int](t, d, `SELECT count(*) FROM mailings WHERE id = $1 AND counted_at IS NULL`, mailing); n != 1 {
		t.Error("the mailing was not marked for a new count")
	}
}

// Any number of opens by one recipient leaves the timeline readable.
func TestRecordFeedback_BoundedTimeline(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id, token := d.Accept(t, company, nil), uuid.New()
	storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), storetest.SentOf(id, token))
	for n := range 120 {
		recordFeedback(t, d, deliveryReport(company, id, token, func(f *feedback.Feedback) { f.Event, f.Metadata = email.EventOpened, map[string]any{"n": n} }))
	}
	recordFeedback(t, d, deliveryReport(company, id, token, func(f *feedback.Feedback) { f.Event = email.EventComplained }))
	if n := ask[int](t, d, `SELECT count(*) FROM email_events WHERE email_log_id = $1`, id); n != 105 {
		t.Errorf("%d events, want 4 of the attempt, 100 and the complaint", n)
	}
}

// The gateway's own steps, of which each probe of an outage adds four, leave room for what the provider reports.
func TestRecordFeedback_AfterManyTries(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id, token := d.Accept(t, company, nil), uuid.New()
	storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), storetest.SentOf(id, token))
	run(t, d, `UPDATE email_logs SET event_seq = event_seq + 1000 WHERE outbox_id = $1`, id)
	run(t, d, `INSERT INTO email_events (email_log_id, seq, previous, type, created_at)
		SELECT $1, 4 + n, CASE n % 4 WHEN 1 THEN 'RELEASED' WHEN 2 THEN 'RECEIVED' WHEN 3 THEN 'VALIDATED' ELSE 'SENT_ATTEMPT' END,
			(ARRAY['RELEASED', 'RECEIVED', 'VALIDATED', 'SENT_ATTEMPT'])[1 + n % 4], now() FROM generate_series(1, 1000) n`, id)
	recordFeedback(t, d, deliveryReport(company, id, token, nil))
	recordFeedback(t, d, deliveryReport(company, id, token, func(f *feedback.Feedback) { f.Event = email.EventOpened }))
	if n := ask[int](t, d, `SELECT count(*) FROM email_events WHERE email_log_id = $1 AND type IN ('DELIVERED', 'OPENED')`, id); n != 2 {
		t.Errorf("%d reported events, want 2", n)
	}
	timeline, err := d.Store.Timeline(t.Context(), id)
	if err != nil || len(timeline) != emails.MaxTimeline || timeline[0].Seq != 7 || timeline[emails.MaxTimeline-1].Type != email.EventOpened {
		t.Errorf("%d events, %v", len(timeline), err)
	}
}

// A bounce that names another address, such as that of the mailbox to which a recipient forwards, is stored once without this
// address, although two topics report it. If the email had one recipient, the bounce suppresses and shows this recipient.
func TestRecordFeedback_AnotherAddress(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for name, tt := range map[string]struct {
		to         string
		change     func(*outbox.NewEmail)
		after      string
		suppressed int
		metadata   string
	}{
		"one recipient": {
			"Contato@acme.example", nil, `SELECT 1`, 2,
			`{"recipient": "Contato@acme.example", "feedbackId": "f-1", "recipients": [{}], "suppressed": ["contato@acme.example"]}`,
		},
		"two recipients": {
			"ana@acme.example", func(e *outbox.NewEmail) { e.Job.CC = []string{"bia@acme.example"} }, `SELECT 1`, 0,
			`{"feedbackId": "f-1", "recipients": [{}]}`,
		},
		"a copy's recipient is erased": {
			"eva@acme.example", func(e *outbox.NewEmail) { e.Job.CC = []string{"rui@acme.example"} },
			`UPDATE email_outbox SET payload = payload || '{"cc":[]}' WHERE payload ->> 'to' = 'eva@acme.example'`, 0,
			`{"feedbackId": "f-1", "recipients": [{}]}`,
		},
		"erased": {
			"caio@acme.example", nil,
			`UPDATE email_outbox SET payload = payload || '{"to":"erased@erased.invalid"}' WHERE payload ->> 'to' = 'caio@acme.example'`, 0,
			`{"feedbackId": "f-1", "recipients": [{}]}`,
		},
		"purged": {"davi@acme.example", nil, `DELETE FROM email_outbox WHERE payload ->> 'to' = 'davi@acme.example'`, 0, `{"feedbackId": "f-1", "recipients": [{}]}`},
	} {
		id, token := d.Accept(t, company, func(e *outbox.NewEmail) {
			e.Job.To = tt.to
			if tt.change != nil {
				tt.change(e)
			}
		}), uuid.New()
		storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), storetest.SentOf(id, token))
		if name == "erased" {
			run(t, d, `UPDATE email_logs SET recipient = 'erased@erased.invalid' WHERE outbox_id = $1`, id)
		}
		run(t, d, tt.after)
		suppressed := 0
		for range 2 { // each with a NotificationID of its own
			suppressed += recordFeedback(t, d, deliveryReport(company, id, token, func(f *feedback.Feedback) {
				f.Event, f.Suppress, f.Addresses = email.EventBounced, suppression.Bounced, []string{"somebody@else.example"}
				f.Metadata = map[string]any{"feedbackId": "f-1", "recipients": []map[string]any{{"address": "somebody@else.example"}}}
				f.Masked = map[string]any{"feedbackId": "f-1", "recipients": []map[string]any{{}}}
			})).Suppressed
		}
		if got := ask[string](t, d, `SELECT string_agg(metadata::text, ' ') FROM email_events WHERE email_log_id = $1 AND type = 'BOUNCED'`, id); got != tt.metadata || suppressed != tt.suppressed {
			t.Errorf("%s: %d suppressed, %s", name, suppressed, got)
		}
	}
	if got := ask[string](t, d, `SELECT string_agg(address, ' ') FROM suppressions`); got != "contato@acme.example" {
		t.Error(got)
	}
}

func TestCleanFeedback(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	run(t, d, `INSERT INTO ses_events (sns_message_id, kind, received_at) SELECT n::text, 'Send', now() - n * interval '1 day' FROM generate_series(1, 40) n`)
	for _, want := range []int{7, 3, 0} {
		if n, err := d.Store.CleanFeedback(t.Context(), 30*24*time.Hour+time.Hour, 7); err != nil || n != want {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
	}
}
