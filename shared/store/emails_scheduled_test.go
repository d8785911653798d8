package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/person"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
)

// logged is the log of an email without what no two share; nil if there is none.
func logged(t *testing.T, d storetest.Database, id uuid.UUID) map[string]any {
	t.Helper()
	row := map[string]any{}
	text := ask[string](t, d, `SELECT coalesce((SELECT to_jsonb(l) - '{outbox_id,created_at,expires_at,send_at}'::text[] ||
		jsonb_build_object('as_row', l.created_at = o.created_at AND l.expires_at = o.expires_at AND l.send_at = o.next_at) FROM email_logs l WHERE l.outbox_id = o.id), 'null')
		FROM email_outbox o WHERE o.id = $1`, id)
	if err := json.Unmarshal([]byte(text), &row); err != nil {
		t.Fatal(err)
	}
	return row
}

func scheduled(e *outbox.NewEmail) {
	e.SendAt, e.RequestID, e.Job.Tags = time.Now().Add(48*time.Hour), "req-1", []string{"a", "b"}
}

// A scheduled email has its log from acceptance on, with what the worker would write,
// whichever statement accepts it. An email that is due has none.
func TestAccept_LogsScheduledEmails(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	single := d.Accept(t, company, scheduled)
	about := d.Accept(t, company, func(e *outbox.NewEmail) {
		scheduled(e)
		e.Aggregate = &outbox.Aggregate{Type: "interview", ID: "1", EventType: "REMINDER"}
	})
	want := map[string]any{
		"company_id": company.String(), "recipient": "ana@example.com", "subject": "Sua fatura está disponível", "status": "PENDING", "attempts": 0.0, "throttles": 0.0,
		"request_id": "req-1", "external_id": "CUST-1", "tags": []any{"a", "b"}, "possible_duplicate": false, "event_seq": 0.0, "as_row": true,
	}
	for _, column := range []string{"recipient_id", "ses_message_id", "error_code", "error_reason", "duration_ms", "sent_at", "failed_at", "last_event", "template", "delivered_at", "delivery_problem", "delivery_problem_at", "delivery_problem_reason"} {
		want[column] = nil
	}
	for _, id := range []uuid.UUID{single, about} {
		if diff := cmp.Diff(want, logged(t, d, id)); diff != "" {
			t.Error(diff)
		}
	}
	e := reminderAbout(company, outbox.Aggregate{Type: "interview", ID: "2", EventType: "REMINDER"})
	e.SendAt = time.Now().Add(time.Hour)
	done, err := outbox.EnqueueIn(t.Context(), d.SQL, e)
	if err != nil {
		t.Fatal(err)
	}
	want["tags"] = []any{}
	if diff := cmp.Diff(want, logged(t, d, done.ID)); diff != "" {
		t.Errorf("by a program: %s", diff)
	}
	e.Aggregate.ID, e.SendAt = "3", time.Now().Add(-time.Hour)
	past, err := outbox.EnqueueIn(t.Context(), d.SQL, e)
	if err != nil {
		t.Fatal(err)
	}
	late := d.Accept(t, company, func(e *outbox.NewEmail) { e.SendAt = time.Now().Add(-time.Hour) })
	for _, id := range []uuid.UUID{past.ID, late, d.Accept(t, company, nil)} {
		if got := logged(t, d, id); got != nil {
			t.Errorf("an email that is due: %v", got)
		}
	}
}

// However a scheduled email goes on, it is in every list once, and its timeline is what it
// would be if the log had not been there.
func TestScheduledEmail_GoesOn(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for name, tt := range map[string]struct {
		prepare string
		steps   func(id, token uuid.UUID) []outbox.Transition
		want    email.Status
		events  int
	}{
		"sent": {`UPDATE email_outbox SET next_at = now() WHERE id = $1`, func(id, token uuid.UUID) []outbox.Transition {
			return []outbox.Transition{storetest.ClaimOf(company, id, token, "CUST-1"), storetest.SentOf(id, token)}
		}, email.Sent, 4},
		"cancelled": {"", func(id, _ uuid.UUID) []outbox.Transition { return []outbox.Transition{storetest.CancelOf(id)} }, email.Cancelled, 1},
		"expired": {`UPDATE email_outbox SET expires_at = now() WHERE id = $1`, func(id, _ uuid.UUID) []outbox.Transition {
			return []outbox.Transition{expireOf(id)}
		}, email.Expired, 1},
	} {
		id := d.Accept(t, company, func(e *outbox.NewEmail) { scheduled(e); e.RequestID = "req-" + name })
		check := func(when string, status email.Status) {
			t.Helper()
			for _, f := range []emails.Filter{{RequestID: "req-" + name}, {RequestID: "req-" + name, Status: status, Tag: "b"}, {From: id, Until: after(id)}, {From: id, Until: after(id), Tag: "a"}} {
				f.Limit = 10
				page, err := d.Store.ListEmails(t.Context(), company, f)
				if err != nil || len(page.Emails) != 1 || page.Emails[0].ID != id || page.Emails[0].Status != status {
					t.Errorf("%s, %s, by %+v: %+v, %v", name, when, f, page.Emails, err)
				}
			}
		}
		check("accepted", email.Pending)
		if tt.prepare != "" {
			run(t, d, tt.prepare, id)
		}
		storetest.Apply(t, d, tt.steps(id, uuid.New())...)
		check("at its end", tt.want)
		events, err := d.Store.Timeline(t.Context(), id)
		if err != nil || len(events) != tt.events || events[0].Seq != 1 {
			t.Errorf("%s: %+v, %v", name, events, err)
		}
		log := logged(t, d, id)
		if log["status"] != string(tt.want) || log["event_seq"] != float64(tt.events) || log["last_event"] != string(tt.want) {
			t.Errorf("%s: %v", name, log)
		}
		run(t, d, `DELETE FROM email_outbox WHERE id = $1`, id)
		check("purged", tt.want)
	}
}

// after is the next id.
func after(id uuid.UUID) uuid.UUID {
	for i := len(id) - 1; i >= 0; i-- {
		id[i]++
		if id[i] != 0 {
			break
		}
	}
	return id
}

// A log without events goes as every other does: never before its outbox row, and with a
// person who is erased.
func TestScheduledEmail_IsPurgedAndErased(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, func(e *outbox.NewEmail) {
		scheduled(e)
		e.ID = uuid.MustParse("01000000-0000-7000-8000-000000000001") // accepted years ago
	})
	if done, err := retention.New(d.Store.DB()).PurgeLogs(t.Context(), 24*time.Hour, 100); err != nil || done.Count != 0 || logged(t, d, id) == nil {
		t.Errorf("purged while it waits: %+v, %v", done, err)
	}
	for again := range 2 { // done twice, it changes nothing more
		done, err := person.New(d.Store.DB()).EraseEmails(t.Context(), storetest.Operator(), company, uuid.New(), []uuid.UUID{id})
		if err != nil || len(done.Busy) != 0 || len(done.Logs) != 1-again {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	if log := logged(t, d, id); log["recipient"] != recipient.ErasedAddress || log["status"] != "CANCELLED" || log["external_id"] != nil || log["subject"] != "" {
		t.Errorf("erased: %v", log)
	}
	run(t, d, `DELETE FROM email_outbox WHERE id = $1`, id)
	run(t, d, `DELETE FROM email_events WHERE email_log_id = $1`, id)
	run(t, d, `UPDATE email_logs SET event_seq = 0, last_event = NULL WHERE outbox_id = $1`, id)
	run(t, d, `DELETE FROM retention_walks`)
	if done, err := retention.New(d.Store.DB()).PurgeLogs(t.Context(), 24*time.Hour, 100); err != nil || done.Count != 1 {
		t.Errorf("after its outbox row: %+v, %v", done, err)
	}
}
