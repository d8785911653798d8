package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// An email can be found from its acceptance on, and still when its outbox row is
// purged; by its own company only.
func TestFindEmail(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	recipient := uuid.New()
	id, token := d.Accept(t, company, func(e *outbox.NewEmail) {
		e.Job.Tags, e.Job.Recipient.RecipientID = []string{"a", "b"}, recipient.String()
	}), uuid.New()
	check := func(stage string, status email.Status) emails.Email {
		t.Helper()
		e, err := d.Store.FindEmail(t.Context(), company, id)
		if err != nil {
			t.Fatalf("%s: %v", stage, err)
		}
		if e.ID != id || e.CompanyID != company || e.RequestID != "req-"+id.String() || e.Status != status || e.Recipient != "ana@example.com" ||
			*e.RecipientID != recipient || *e.ExternalID != "CUST-1" || e.Subject != "Sua fatura está disponível" || !slices.Equal(e.Tags, []string{"a", "b"}) ||
			!about(time.Since(e.CreatedAt), 0) || !about(time.Until(e.ExpiresAt), 24*time.Hour) {
			t.Errorf("%s: %+v", stage, e)
		}
		if _, err := d.Store.FindEmail(t.Context(), other, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s, by another company: %v", stage, err)
		}
		return e
	}
	if e := check("accepted", email.Pending); e.Attempts != 0 || e.SESMessageID != nil || e.NextAt == nil {
		t.Errorf("%+v", e)
	}
	claim := storetest.ClaimOf(company, id, token, "C")
	claim.Recipient = nil
	storetest.Apply(t, d, claim)
	if e := check("claimed", email.Processing); e.Attempts != 1 {
		t.Errorf("%+v", e)
	}
	storetest.Apply(t, d, storetest.SentOf(id, token))
	run(t, d, `DELETE FROM email_outbox`)
	if e := check("purged", email.Sent); e.Attempts != 1 || *e.SESMessageID != "ses-"+id.String() || e.NextAt != nil || e.SentAt == nil {
		t.Errorf("%+v", e)
	}
	run(t, d, `INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, expires_at)
		VALUES (gen_random_uuid(), $1, 1, 'mailing.process', 'r', '{}', now())`, company)
	job := ask[string](t, d, `SELECT id FROM email_outbox`)
	if _, err := d.Store.FindEmail(t.Context(), company, uuid.MustParse(job)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a job: %v", err)
	}
}

func TestTimeline(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	if events, err := d.Store.Timeline(t.Context(), id); err != nil || events == nil || len(events) != 0 {
		t.Errorf("before the first event: %v, %v", events, err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	transition := storetest.CancelOf(id)
	transition.Events = []email.Event{{Type: email.EventCancelled, At: at, Metadata: map[string]any{"by": "ana"}}}
	storetest.Apply(t, d, transition)
	events, err := d.Store.Timeline(t.Context(), id)
	if err != nil || len(events) != 1 || !events[0].CreatedAt.Equal(at) || string(events[0].Metadata) != `{"by": "ana"}` {
		t.Errorf("%+v, %v", events, err)
	}
}

// pages walks through a list and returns all of it, newest first.
func pages(t *testing.T, d storetest.Database, company uuid.UUID, f emails.Filter) []uuid.UUID {
	t.Helper()
	ids := []uuid.UUID{}
	for range 1000 {
		page, err := d.Store.ListEmails(t.Context(), company, f)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Emails) > max(f.Limit, 1) {
			t.Fatalf("%d emails on a page of %d", len(page.Emails), f.Limit)
		}
		for _, e := range page.Emails {
			ids = append(ids, e.ID)
		}
		if page.Next == uuid.Nil {
			return ids
		}
		f.Before = page.Next
	}
	t.Fatal("the list has no end")
	return nil
}

// The list holds every email once, whether only accepted, in work, or purged.
func TestListEmails(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	var ids, sent, tagged, toBea, ofRequest, ofCustomer []uuid.UUID
	for i := range 30 {
		id := d.Accept(t, company, func(e *outbox.NewEmail) {
			if i%5 == 0 {
				e.Job.Tags = []string{"x", "invoice"}
			}
			if i%4 == 0 {
				e.Job.To, e.Job.Recipient.Email = "Bea@Example.com", "Bea@Example.com"
			}
			if i%10 == 0 {
				e.RequestID = "batch-1"
			}
			e.Job.Recipient.ExternalID = fmt.Sprint("CUST-", i%3)
		})
		d.Accept(t, other, nil)
		ids = append(ids, id)
		if i%5 == 0 {
			tagged = append(tagged, id)
		}
		if i%3 == 1 {
			ofCustomer = append(ofCustomer, id)
		}
		if i%2 == 1 {
			continue // no worker has seen it: it is found all the same
		}
		token := uuid.New()
		storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), storetest.SentOf(id, token))
		sent = append(sent, id)
		if i%4 == 0 {
			toBea = append(toBea, id)
		}
		if i%10 == 0 {
			ofRequest = append(ofRequest, id)
		}
		if i%8 == 0 {
			run(t, d, `DELETE FROM email_outbox WHERE id = $1`, id)
		}
	}
	for name, tt := range map[string]struct {
		filter emails.Filter
		want   []uuid.UUID
	}{
		"all":               {emails.Filter{}, ids},
		"sent":              {emails.Filter{Status: email.Sent}, sent},
		"none":              {emails.Filter{Status: email.Suppressed}, nil},
		"tag":               {emails.Filter{Tag: "invoice"}, tagged},
		"tag and status":    {emails.Filter{Tag: "invoice", Status: email.Sent}, slices.DeleteFunc(slices.Clone(tagged), func(id uuid.UUID) bool { return !slices.Contains(sent, id) })},
		"recipient":         {emails.Filter{Recipient: "bea@example.COM"}, toBea},
		"request":           {emails.Filter{RequestID: "batch-1"}, ofRequest},
		"external id":       {emails.Filter{ExternalID: "CUST-1"}, ofCustomer},
		"from":              {emails.Filter{From: ids[10]}, ids[10:]},
		"until":             {emails.Filter{Until: ids[10]}, ids[:10]},
		"from until":        {emails.Filter{From: ids[10], Until: ids[20]}, ids[10:20]},
		"recipient and tag": {emails.Filter{Recipient: "bea@example.com", Tag: "invoice"}, []uuid.UUID{ids[0], ids[20]}},
	} {
		want := slices.Clone(tt.want)
		slices.Reverse(want)
		if want == nil {
			want = []uuid.UUID{}
		}
		for _, limit := range []int{0, 1, 3, 30, 1000} {
			f := tt.filter
			f.Limit = limit
			if diff := cmp.Diff(want, pages(t, d, company, f)); diff != "" {
				t.Errorf("%s, %d a page: %s", name, limit, diff)
			}
		}
	}
}

// An email of a mailing that waits for the dispatcher is found whatever the mailing does.
func TestListEmails_WaitingOfAMailing(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, func(e *outbox.NewEmail) { e.RequestID = "req-m" })
	mailing := storetest.OfMailing(t, d, company, id)
	for _, state := range []string{
		`status = 'QUEUED'`, `status = 'PENDING'`, `status = 'PROCESSING'`, `status = 'SENDING'`, `status = 'PAUSED'`, `status = 'FAILED'`,
		`status = 'CANCELLED', settling = 'cancel', settled_to = id`,
	} {
		run(t, d, `UPDATE mailings SET `+state+` WHERE id = $1`, mailing)
		for _, f := range []emails.Filter{{Recipient: "ana@example.com"}, {ExternalID: "CUST-1"}, {RequestID: "req-m"}} {
			f.Limit = 10
			if diff := cmp.Diff([]uuid.UUID{id}, pages(t, d, company, f)); diff != "" {
				t.Errorf("%s, by %+v: %s", state, f, diff)
			}
		}
	}
}
