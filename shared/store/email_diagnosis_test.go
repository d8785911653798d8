package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

func TestFindEmailDiagnosis(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, func(e *outbox.NewEmail) { e.SendAt = time.Now().Add(time.Hour) })
	find := func() emails.Diagnosis {
		t.Helper()
		found, err := d.Store.FindEmailDiagnosis(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}

	fresh := find()
	if fresh.Status != email.Pending || fresh.CompanyID != company || fresh.CompanyName == "" || fresh.Recipient != "ana@example.com" {
		t.Errorf("accepted: %+v", fresh)
	}
	if fresh.Queue == nil || *fresh.Queue != email.QueueNormal || fresh.DeliveryPolicy == nil || *fresh.DeliveryPolicy != email.AtLeastOnce || fresh.Delivery != nil {
		t.Errorf("queue %v, delivery %v, its policy %v", fresh.Queue, fresh.Delivery, fresh.DeliveryPolicy)
	}
	if fresh.LastEvent != nil {
		t.Errorf("an email without events has the last event %s", *fresh.LastEvent)
	}
	if wait := fresh.NextAt.Sub(fresh.AskedAt); wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("due in %s, want an hour", wait)
	}
	if fresh.SuspendedAt != nil || fresh.PausedAt != nil || fresh.ParkedUntil != nil || fresh.LeaseUntil != nil || fresh.ProcessedAt != nil {
		t.Errorf("nothing blocks the email, but the diagnosis is %+v", fresh)
	}

	exec := func(statement string) {
		t.Helper()
		if _, err := d.SQL.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec(`UPDATE dispatch_lanes SET paused_at = now(), parked_until = now() + interval '1 min'`)
	exec(`UPDATE email_outbox SET status = 'PROCESSING', claim_token = gen_random_uuid(), lease_until = now() + interval '1 min', enqueued_at = now()`)
	if err := d.Store.SuspendCompany(t.Context(), storetest.Because("unpaid"), company); err != nil {
		t.Fatal(err)
	}
	held := find()
	if held.SuspendedAt == nil || *held.SuspendedReason != "unpaid" || held.PausedAt == nil || held.ParkedUntil == nil ||
		held.LeaseUntil == nil || held.EnqueuedAt == nil {
		t.Errorf("held: %+v", held)
	}
}

// The delivery state and the delivery policy are two fields, also while the outbox row exists.
func TestFindEmailDiagnosis_Delivery(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, token := d.Company(t), uuid.New()
	id := d.Accept(t, company, func(e *outbox.NewEmail) { e.Delivery = email.AtMostOnce })
	storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"))
	storetest.Apply(t, d, storetest.SentOf(id, token))
	found, err := d.Store.FindEmailDiagnosis(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if found.Delivery == nil || *found.Delivery != email.DeliveryPending || *found.DeliveryPolicy != email.AtMostOnce {
		t.Errorf("delivery %v, policy %v", found.Delivery, found.DeliveryPolicy)
	}
}

// An email can be diagnosed after its outbox row was purged.
func TestFindEmailDiagnosis_AfterThePurge(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	id := d.Accept(t, d.Company(t), nil)
	done, err := d.Store.Advance(t.Context(), outbox.Transition{
		ID: id, Guard: outbox.GuardOpen, Status: email.Cancelled,
		Events: []email.Event{{Type: email.EventCancelled, At: time.Now(), Metadata: map[string]any{}}},
	})
	if err != nil || !done.Applied {
		t.Fatalf("cancel: %+v, %v", done, err)
	}
	if _, err := d.SQL.ExecContext(t.Context(), `DELETE FROM email_outbox`); err != nil {
		t.Fatal(err)
	}
	found, err := d.Store.FindEmailDiagnosis(t.Context(), id)
	if err != nil || found.Status != email.Cancelled || *found.LastEvent != email.EventCancelled || found.Queue != nil || found.NextAt != nil || found.CompanyName == "" {
		t.Errorf("found %+v, %v", found, err)
	}
	if _, err := d.Store.FindEmailDiagnosis(t.Context(), uuid.New()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no such email: %v, want ErrNotFound", err)
	}
}
