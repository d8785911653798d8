package mailing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/mailing"
	"email-gateway/worker/internal/queue"
)

// Another session has locked a recipient, or is inserting one. The mailing is expanded meanwhile,
// and the claim of the email stores what its entry says about that recipient. A batch close to the daily
// quota, which is written in the transaction that checks the quota, does the same.
func TestProcessor_LockedRecipient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare, lock string
		others        bool // are stored at once
		quota         int64
	}{
		"locked":                           {`INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, 'old@example.com')`, `SELECT $2::uuid FROM recipients WHERE id = $1 FOR UPDATE`, true, 0},
		"being inserted":                   {``, `INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, 'old@example.com')`, false, 0},
		"locked, close to the daily quota": {`INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, 'old@example.com')`, `SELECT $2::uuid FROM recipients WHERE id = $1 FOR UPDATE`, true, 100},
		"being inserted, close to the daily quota": {``, `INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, 'old@example.com')`, false, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			hash := strings.Repeat("0a", 32)
			entries := many(40)
			entries[17] = entry{email: "ana@example.com", nome: "Ana", cidade: "Recife", externalID: "C-x", hash: hash, enc: []byte("sealed")}
			entries[18] = entry{email: "bia@example.com", nome: "Ana"} // identified by the id of its address alone
			id, ids := b.mailing(t, entries...)
			b.limitEmailsPerDay(t, c.quota)
			person, byAddress := recipient.ID(b.company, "C-x", hash, "ana@example.com"), recipient.ID(b.company, "", "", "bia@example.com")
			tx, err := b.SQL.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			for _, held := range []uuid.UUID{person, byAddress} {
				if c.prepare != "" {
					b.exec(t, c.prepare, held, b.company)
				}
				if _, err := tx.ExecContext(t.Context(), c.lock, held, b.company); err != nil {
					t.Fatal(err)
				}
			}
			known := recipient.ID(b.company, "C-16", "", "user16@example.com") // of the same batch, and not locked
			b.exec(t, `INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, 'old@example.com')`, known, b.company)
			p := b.params()
			p.BatchSize = 10
			if err := handle(t.Context(), p, taskOf(id, 1)); err != nil {
				t.Fatal(err)
			}
			b.expandedOnce(t, id, len(ids))
			if n := ask[int](t, b, `SELECT count(*) FROM recipients WHERE nome = 'Ana' AND NOT id = ANY (ARRAY[$1::uuid, $2::uuid])`, person, byAddress); n < 10 || c.others && n != 38 {
				t.Errorf("%d other recipients are stored", n)
			}
			b.want(t, "C-16 Ana user16@example.com", `SELECT concat_ws(' ', external_id, nome, email) FROM recipients WHERE id = $1`, known)
			b.want(t, "", `SELECT coalesce(string_agg(id::text, ' '), '') FROM mailing_entries WHERE recipient_id IS NULL OR cpf_cnpj_enc IS NOT NULL`)
			b.want(t, "0", `SELECT count(*)::text FROM email_outbox WHERE id = ANY (ARRAY[$1::uuid, $2::uuid]) AND payload #> '{recipient,recipientId}' IS NOT NULL`, ids[17], ids[18])
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			for i, said := range map[int]recipient.Recipient{
				17: {ID: person, ExternalID: "C-x", CPFCNPJHash: hash, Nome: "Ana", Email: "ana@example.com"},
				18: {ID: byAddress, Nome: "Ana", Email: "bia@example.com"},
			} {
				done, err := b.Store.NewAdvancer().Advance(t.Context(), outbox.Transition{
					ID: ids[i], Guard: outbox.GuardClaim, Token: uuid.New(), Status: email.Processing, AddAttempts: 1, Company: b.company, Recipient: &said,
					Events: []email.Event{{Type: email.EventReceived, At: time.Now()}, {Type: email.EventValidated, At: time.Now()}, {Type: email.EventSentAttempt, At: time.Now()}},
				})
				if err != nil || !done.Applied {
					t.Fatalf("claim: %+v, %v", done, err)
				}
			}
			b.want(t, "C-x Ana sealed ana@example.com", `SELECT external_id || ' ' || nome || ' ' || convert_from(cpf_cnpj_enc, 'UTF8') || ' ' || email FROM recipients WHERE id = $1`, person)
			b.want(t, "bia@example.com", `SELECT email FROM recipients WHERE id = $1`, byAddress)
			b.want(t, "0", `SELECT count(*)::text FROM email_outbox WHERE cpf_cnpj_enc IS NOT NULL`)
		})
	}
}

// Another session has locked the mailing. The job makes room for others and is retried.
func TestProcessor_LockedMailing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.mailing(t, many(3)...)
	p := b.params()
	p.StaleAfter = time.Second
	release := func() {}
	p.Store = &steppedStore{Store: b.Store, before: func(step string) error {
		if step != "Expand" {
			return nil
		}
		tx, err := b.SQL.BeginTx(context.WithoutCancel(t.Context()), nil)
		if err != nil {
			return err
		}
		release = func() { _ = tx.Rollback() }
		_, err = tx.ExecContext(t.Context(), `SELECT FROM mailings WHERE id = $1 FOR UPDATE`, id)
		return err
	}}
	err := handle(t.Context(), p, taskOf(id, 1))
	release()
	wantUncounted(t, err)
	storetest.WaitFor(t, b.Database, fmt.Sprintf(`SELECT last_attempt < now() - interval '1 s' FROM mailings WHERE id = '%s'`, id))
	p.Store = b.Store
	var later *queue.RetryLater
	if err := handle(t.Context(), p, taskOf(id, 1)); err != nil && !errors.As(err, &later) {
		t.Fatal(err)
	}
	b.expandedOnce(t, id, len(ids))
}

// Another session has locked a mailing before its job begins. The only worker releases the job at
// once and expands another mailing, and the locked one when its row is free.
func TestProcessor_LockedMailingDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held, _ := b.mailing(t, many(3)...)
	other, otherIDs := b.mailing(t, many(3)...)
	tx, err := b.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM mailings WHERE id = $1 FOR UPDATE`, held); err != nil {
		t.Fatal(err)
	}
	unlimited, err := store.Open(t.Context(), b.URL, store.Options{StatementTimeout: time.Hour}) // a wait for the lock would not end
	if err != nil {
		t.Fatal(err)
	}
	defer unlimited.Close()
	params := b.params()
	params.Store = unlimited
	p := mailing.New(params)
	limited, cancel := context.WithTimeout(t.Context(), waittest.Limit)
	defer cancel()
	results := p.Handle(limited, []queue.Task{taskOf(held, 1), taskOf(other, 1)})
	wantUncounted(t, results[0])
	if results[1] != nil {
		t.Error(results[1])
	}
	b.expandedOnce(t, other, len(otherIDs))
	b.want(t, "QUEUED", `SELECT status FROM mailings WHERE id = $1`, held)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if results := p.Handle(t.Context(), []queue.Task{taskOf(held, 1)}); results[0] != nil {
		t.Fatal(results[0])
	}
	b.want(t, "6 SENDING", `SELECT (SELECT count(*) FROM email_outbox WHERE target = 'email:send') || ' ' || status FROM mailings WHERE id = $1`, held)
}

// Another session has locked the company's quotas for longer than the tries of a job take. No try is
// counted, and the mailing is expanded once the lock is released.
func TestProcessor_LockedQuotas(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.mailing(t, many(3)...)
	b.limitEmailsPerDay(t, 1000)
	tx, err := b.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM quota_totals WHERE company_id = $1 FOR UPDATE`, b.company); err != nil {
		t.Fatal(err)
	}
	task := taskOf(id, 1)
	for try := range 4 {
		task.LastTry = try >= 2
		wantUncounted(t, handle(t.Context(), b.params(), task))
		b.want(t, "PROCESSING 0 0", `SELECT status || ' ' || attempts || ' ' || (SELECT count(*) FROM dead_letters) FROM mailings`)
		b.exec(t, `UPDATE mailings SET last_attempt = now() - interval '31 s'`)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := handle(t.Context(), b.params(), task); err != nil {
		t.Fatal(err)
	}
	b.expandedOnce(t, id, len(ids))
}

// Another session locks the mailing while its job writes a batch. Close to the daily quota the job waits less
// for it, because other requests of the company wait for the quotas that the job has locked.
func TestProcessor_LockedMailingCloseToQuota(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	expand := func() time.Duration {
		id, _ := b.mailing(t, many(3)...)
		p := b.params()
		var tx *sql.Tx
		var start time.Time
		p.Store = &steppedStore{Store: b.Store, before: func(step string) (err error) {
			if step != "Expand" {
				return nil
			}
			if tx, err = b.SQL.BeginTx(context.WithoutCancel(t.Context()), nil); err != nil {
				return err
			}
			_, err = tx.ExecContext(t.Context(), `SELECT FROM mailings WHERE id = $1 FOR UPDATE`, id)
			start = time.Now()
			return err
		}}
		wantUncounted(t, handle(t.Context(), p, taskOf(id, 1)))
		took := time.Since(start)
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		b.want(t, "PROCESSING 0 0", `SELECT status || ' ' || attempts || ' ' || (SELECT count(*) FROM dead_letters) FROM mailings WHERE id = $1`, id)
		return took
	}
	// The shortest of three: another process of the machine may delay one.
	usual := min(expand(), expand(), expand())
	b.limitEmailsPerDay(t, 1000)
	if took := min(expand(), expand(), expand()); 2*took > usual {
		t.Errorf("the quotas are locked for %v, and without a quota the job waits %v", took, usual)
	}
}

// Another session locks the mailing while its job runs. A heartbeat and the record of a failure
// fail after a bounded wait.
func TestProcessor_MailingLockedAtWork(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"heartbeat": false, "failure": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			id, _ := b.mailing(t, many(3)...)
			job, lock, err := b.Store.LockMailing(t.Context(), id, 1, time.Minute, time.Second)
			if err != nil || lock != mailingstore.Locked {
				t.Fatal(lock, err)
			}
			tx, err := b.SQL.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(t.Context(), `SELECT FROM mailings WHERE id = $1 FOR UPDATE`, id); err != nil {
				t.Fatal(err)
			}
			if fails {
				_, err = b.Store.FailJob(t.Context(), &job, mailingstore.FailedJob{Reason: "X", Detail: "x", TaskID: uuid.NewString(), Payload: []byte(`{}`)})
			} else {
				_, err = b.Store.HoldMailing(t.Context(), &job)
			}
			if !errors.Is(err, recipient.ErrLocked) {
				t.Errorf("got %v, want ErrLocked", err)
			}
		})
	}
}
