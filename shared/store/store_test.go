package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

func TestSmoke(t *testing.T) {
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, nil)
	lanes, err := d.Store.LiveLanes(t.Context(), email.QueueNormal, 5*time.Second)
	if err != nil || len(lanes) != 1 {
		t.Fatal(lanes, err)
	}
	adv := d.Store.NewAdvancer()
	token := uuid.New()
	now := time.Now()
	a, err := adv.Advance(t.Context(), store.Transition{ID: id, Guard: store.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1,
		Events:    []email.Event{{Type: email.EventReceived, At: now}, {Type: email.EventValidated, At: now}, {Type: email.EventSentAttempt, At: now}},
		Recipient: &store.Recipient{ID: store.RecipientID(company, "CUST-1", "", ""), ExternalID: "CUST-1", Email: "ana@example.com"}})
	t.Log(a, err)
	if !a.Applied {
		t.Fatal("not applied")
	}
	a, err = adv.Advance(t.Context(), store.Transition{ID: id, Guard: store.GuardAttempt, Token: token, Status: email.Sent, SESMessageID: "x", Events: []email.Event{{Type: email.EventSent, At: now}}})
	t.Log(a, err)
	e, err := d.Store.FindEmail(t.Context(), company, id)
	t.Logf("%+v %v", e, err)
	tl, err := d.Store.Timeline(t.Context(), id)
	t.Logf("%+v %v", tl, err)
	if len(tl) != 4 {
		t.Fatal("timeline")
	}
	p, err := d.Store.ListEmails(t.Context(), company, store.EmailFilter{Limit: 10, Status: "SENT"})
	t.Log(len(p.Emails), p.Next, err)
	l, err := d.Store.NewLoader().Load(t.Context(), id)
	t.Logf("%+v %v", l, err)
	var used *store.KeyUsedError
	k := &store.IdempotencyKey{Route: "r", Key: "k", BodySHA256: make([]byte, 32), Status: 202, Answer: []byte("{}"), Keep: time.Hour}
	ac := d.Store.NewAccepter()
	if err := ac.Accept(t.Context(), storetest.NewEmail(company, func(e *store.NewEmail) { e.Idempotency = k })); err != nil {
		t.Fatal(err)
	}
	if err := ac.Accept(t.Context(), storetest.NewEmail(company, func(e *store.NewEmail) { e.Idempotency = k })); !errors.As(err, &used) {
		t.Fatal(err)
	}
}
