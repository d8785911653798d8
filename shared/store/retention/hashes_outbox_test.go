package retention_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
)

// The number of a final email is erased; an email without another identifier cannot be replayed then.
func TestEraseOutboxHashes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	ownHashes(t, d, other, 7)
	old, young, open := storetest.EndedEmail(t, d, company, 31*day, email.Failed), storetest.EndedEmail(t, d, company, 29*day, email.Failed), storetest.EndedEmail(t, d, company, 31*day, email.Pending)
	nameless, sent := storetest.EndedEmail(t, d, company, 32*day, email.Failed), storetest.EndedEmail(t, d, company, 33*day, email.Sent)
	theirs := storetest.EndedEmail(t, d, other, 8*day, email.Failed)
	d.Run(t, `UPDATE email_outbox SET payload = payload #- '{recipient,externalId}' WHERE id = ANY (ARRAY[$1, $2]::uuid[])`, nameless, sent)

	for _, round := range []struct {
		age  time.Duration
		want int
	}{{0, 1}, {30 * day, 3}} {
		d.Run(t, `DELETE FROM retention_walks`)
		if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseOutboxHashes, round.age, 2); n != round.want {
			t.Errorf("%v: %d erased, want %d", round.age, n, round.want)
		}
	}
	expectKept(t, d, "email_outbox WHERE payload::text LIKE '%cpfCnpjHash%'", "id", young, open)
	expectKept(t, d, "email_outbox WHERE body_erased_at IS NOT NULL", "id", nameless)
	if html := storetest.Ask[string](t, d, `SELECT html FROM email_outbox WHERE id = $1`, sent); html == "" {
		t.Error("the body of a sent email was erased")
	}
	for id, want := range map[uuid.UUID]bool{old: true, theirs: true, nameless: false} {
		if moved, err := d.Store.Advance(t.Context(), storetest.ReplayOf(id)); err != nil || moved.Applied != want {
			t.Errorf("replay: %+v, %v", moved, err)
		}
	}
}

// The entry values of a mailing's email are erased with its body.
func TestEraseOutboxHashes_OfAMailing(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := storetest.EndedEmail(t, d, company, 40*day, email.Failed)
	storetest.OfMailing(t, d, company, id)
	d.Run(t, `UPDATE email_outbox SET payload = payload #- '{recipient,externalId}' WHERE id = $1`, id)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseOutboxHashes, 30*day, 10); n != 1 {
		t.Fatalf("%d erased", n)
	}
	if left := storetest.Ask[string](t, d, `SELECT email || fields::text || token FROM mailing_entries WHERE id = $1`, id); left != "ana@example.com{}" {
		t.Errorf("left of the entry: %s", left)
	}
}

// Recipient imports keep the number until a worker has stored them.
func TestEraseOutboxHashes_Intakes(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	people := []recipient.NewRecipient{storetest.KnownRecipient("C-1", "ana@example.com", "Ana"), storetest.KnownRecipient("C-2", "bia@example.com", "Bia")}
	for i := range people {
		people[i].CPFCNPJHash, people[i].CPFCNPJ = storetest.HashOf('a'), []byte("enc")
	}
	ids := oldIntakes(t, d, company, people...)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseOutboxHashes, 30*day, 10); n != 1 {
		t.Errorf("%d erased", n)
	}
	expectKept(t, d, "email_outbox WHERE payload ->> 'cpfCnpjHash' IS NOT NULL", "id", ids[1])
}

// Dead-lettered recipient imports keep the number as long as they can be retried.
func TestEraseOutboxHashes_GivenUp(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	ana := storetest.KnownRecipient("C-1", "ana@example.com", "Ana")
	ana.CPFCNPJHash, ana.CPFCNPJ = storetest.HashOf('a'), []byte("enc")
	id := storetest.Intake(t, d, company, ana)[0]
	d.Run(t, `UPDATE email_outbox SET status = 'PUBLISHED', processed_at = now()`)
	if err := d.Store.DeadLetterImport(t.Context(), id, "REFUSED", "poison", 4); err != nil {
		t.Fatal(err)
	}
	letter, err := d.Store.FindAnyDeadLetter(t.Context(), storetest.Ask[uuid.UUID](t, d, `SELECT id FROM dead_letters WHERE outbox_id = $1`, id))
	if err != nil {
		t.Fatal(err)
	}
	old := storetest.IDOf(3 * day)
	d.Run(t, `UPDATE email_outbox SET id = $1, processed_at = now() - interval '3 days'`, old)
	d.Run(t, `UPDATE dead_letters SET outbox_id = $1`, old)
	letter.OutboxID = &old
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseOutboxHashes, 2*day, 10); n != 0 {
		t.Errorf("%d erased", n)
	}
	if err := d.Store.RetryDeadLetter(t.Context(), letter, deadletter.LetterRetry{Actor: audit.Actor{By: audit.ByAPI, Name: "key1"}, RequestID: "req-9", TTL: 6 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	storetest.Upsert(t, d, old)
	if who := storetest.RecipientRow(t, d, company, "C-1"); who != "C-1|aa|enc|Ana|ana@example.com|t" {
		t.Errorf("written down: %s", who)
	}

	d.Run(t, `UPDATE email_outbox SET status = 'FAILED', processed_at = now() - interval '3 days'`)
	d.Run(t, `DELETE FROM retention_walks`)
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseOutboxHashes, 2*day, 10); n != 1 {
		t.Errorf("%d numbers of an import that cannot be retried any more were erased, want 1", n)
	}
}

// A request that is repeated within its key's time is recognized, also after the number and the body of the first one were
// erased.
func TestEraseOutboxHashes_RepeatedRequestsAreFound(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	const answer = `{"outboxId":"x"}`
	keyed := func(e *outbox.NewEmail) {
		e.Idempotency = &idempotency.Key{
			Route: "POST /v1/email/send", Key: "k", BodySHA256: bytes.Repeat([]byte{7}, 32), Status: 202, Answer: []byte(answer), Keep: 72 * time.Hour,
		}
		e.Job.Recipient = email.JobRecipient{CPFCNPJHash: storetest.HashOf('a'), Email: e.Job.To}
	}
	first := d.Accept(t, company, keyed)
	storetest.Apply(t, d, storetest.CancelOf(first))
	d.Run(t, `UPDATE email_outbox SET id = $1, processed_at = now() - interval '2 days'`, storetest.IDOf(2*day))
	if n := storetest.Drain(t, retention.New(d.Store.DB()).EraseOutboxHashes, day, 10); n != 1 {
		t.Fatalf("%d erased", n)
	}
	var used *idempotency.UsedError
	if err := d.Store.NewAccepter().Accept(t.Context(), storetest.NewEmail(company, keyed)); !errors.As(err, &used) || string(used.Answer.Answer) != answer {
		t.Errorf("the same again: %v", err)
	}
}
