package history_test

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/scripts/bench/history"
	"email-gateway/shared/email"
	emailstore "email-gateway/shared/store/emails"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
)

const emails = 1000

// The store returns complete data about the emails of a history.
func TestAdd(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	model := sent(t, d, company)
	const indexes = `SELECT string_agg(indexdef, ';' ORDER BY indexname) FROM pg_indexes WHERE schemaname = 'public'
		AND tablename NOT IN (SELECT relname FROM pg_class WHERE relispartition)` // partitions of past months are new
	before := read[string](t, d.SQL, indexes)
	if err := history.Add(t.Context(), d.SQL, model, emails); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, read[string](t, d.SQL, indexes)); diff != "" {
		t.Errorf("the indexes differ (-before +after):\n%s", diff)
	}

	if n := read[int](t, d.SQL, `SELECT count(*) FROM email_outbox o JOIN email_logs l ON l.outbox_id = o.id WHERE o.status = 'SENT' AND l.status = 'SENT'
		AND o.payload ->> 'outboxId' = o.id::text AND o.request_id = l.request_id AND o.payload ->> 'to' = l.recipient`); n != emails+1 {
		t.Errorf("%d emails, with the model's, have a log that fits; want %d", n, emails+1)
	}
	// The history may begin in earlier months, which get partitions too.
	if n := read[int](t, d.SQL, `SELECT (SELECT count(*) FROM email_logs_default) + (SELECT count(*) FROM email_events_default)`); n != 0 {
		t.Errorf("%d rows are in a default partition", n)
	}
	if n := read[int](t, d.SQL, `SELECT count(DISTINCT recipient) FROM email_logs`); n != emails/10+1 {
		t.Errorf("%d people, with the model's; want %d", n, emails/10+1)
	}
	if n := read[int](t, d.SQL, `SELECT count(*) FROM email_outbox WHERE id < $1`, model); n != emails {
		t.Errorf("%d ids sort before that of the model, want all %d", n, emails)
	}

	page, err := d.Store.ListEmails(t.Context(), company, emailstore.Filter{Recipient: "pessoa.7@cliente.example", Limit: 50})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Emails) != 10 {
		t.Fatalf("the list shows %d emails to one person, want 10", len(page.Emails))
	}
	id := page.Emails[0].ID
	if at := time.Unix(id.Time().UnixTime()); id.Version() != 7 || time.Since(at) < time.Hour || time.Since(at) > 22*24*time.Hour {
		t.Errorf("id %s is of %s, want a UUIDv7 of the last weeks", id, at)
	}
	events, err := d.Store.Timeline(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var types []email.EventType
	for _, e := range events {
		types = append(types, e.Type)
	}
	want := []email.EventType{email.EventReceived, email.EventValidated, email.EventSentAttempt, email.EventSent}
	if !slices.Equal(types, want) {
		t.Errorf("timeline %v, want %v", types, want)
	}
}

// The model must be an email that was sent.
func TestAdd_ModelNotSent(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	pending := d.Accept(t, company, nil)
	if err := history.Add(t.Context(), d.SQL, pending, 1); err == nil {
		t.Error("a pending model made sent emails")
	}
	if err := history.Add(t.Context(), d.SQL, uuid.New(), 1); err == nil {
		t.Error("no model made emails")
	}
}

// sent returns the id of an email that was sent.
func sent(t *testing.T, d storetest.Database, company uuid.UUID) uuid.UUID {
	t.Helper()
	id, token := d.Accept(t, company, nil), uuid.New()
	for _, transition := range []outbox.Transition{
		claim(company, id, token),
		{
			ID: id, Guard: outbox.GuardAttempt, Token: token, Status: email.Sent, SESMessageID: "0100-1", Duration: time.Millisecond,
			Events: []email.Event{{Type: email.EventSent, At: time.Now()}},
		},
	} {
		got, err := d.Store.Advance(t.Context(), transition)
		if err != nil || !got.Applied {
			t.Fatalf("advance to %s: %+v, %v", transition.Status, got, err)
		}
	}
	return id
}

func claim(company, id, token uuid.UUID) outbox.Transition {
	return outbox.Transition{
		ID: id, Guard: outbox.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1,
		Events: []email.Event{
			{Type: email.EventReceived, At: time.Now()}, {Type: email.EventValidated, At: time.Now()}, {Type: email.EventSentAttempt, At: time.Now()},
		},
		Recipient: &recipient.Recipient{ID: recipient.ID(company, "CUST-1", "", ""), ExternalID: "CUST-1", Email: "ana@example.com"},
	}
}

func read[T any](t *testing.T, db *sql.DB, query string, args ...any) (value T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}
