package mailing_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/person"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue"
)

func TestProcessor_Expands(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	hash := strings.Repeat("0a", 32)
	id, ids := b.mailing(t,
		entry{email: "ana@example.com", nome: "Ana", cidade: "Recife", externalID: "C-1", hash: hash, enc: []byte("sealed")},
		entry{email: "bad", invalid: "syntax"},
		entry{email: "bia@Example.com", nome: "Bia", cidade: "Olinda"},
		entry{email: "caio@gone.example", nome: "Caio"},
		entry{email: "dora@example.com", nome: "Dora", cidade: "a\r\nBcc: x@example.com"},
		entry{email: "enzo@example.com", nome: strings.Repeat("é", 150)},
		entry{email: "ana.2@example.com", nome: "Ana", cidade: "Recife", externalID: "C-1", hash: hash},
	)
	p := b.params()
	p.Domains = domains{"gone.example": {Detail: "the domain has neither MX nor address records"}}
	if err := handle(t.Context(), p, taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "QUEUED INVALID QUEUED INVALID INVALID INVALID QUEUED", `SELECT string_agg(status, ' ' ORDER BY id) FROM mailing_entries`)
	b.want(t, "syntax mx syntax syntax", `SELECT string_agg(invalid_reason, ' ' ORDER BY id) FROM mailing_entries WHERE status = 'INVALID'`)
	b.want(t, "the domain has neither MX nor address records", `SELECT validation_details FROM mailing_entries WHERE id = $1`, ids[3])
	b.want(t, "true", `SELECT (validation_details LIKE 'subject: VALUE_CONTROL%')::text FROM mailing_entries WHERE id = $1`, ids[4])
	b.want(t, "true", `SELECT (validation_details LIKE 'subject: SUBJECT_LENGTH%')::text FROM mailing_entries WHERE id = $1`, ids[5])
	b.want(t, "SENDING 6 1", `SELECT status || ' ' || processed_lines || ' ' || generation FROM mailings`)

	b.want(t, "3", `SELECT count(*)::text FROM email_outbox WHERE status = 'PENDING' AND priority = 8 AND html IS NULL AND sender = 'Acme <billing@acme.example>'
		AND request_id = 'req-1' AND delivery = 'at_least_once' AND expires_at > now() + interval '9 years' AND next_at <= now()
		AND lane_id = (SELECT id FROM dispatch_lanes WHERE mailing_id = $1)`, id)
	job := func(id uuid.UUID) email.SendJob {
		t.Helper()
		var job email.SendJob
		if err := json.Unmarshal(ask[[]byte](t, b, `SELECT payload FROM email_outbox WHERE id = $1`, id), &job); err != nil {
			t.Fatal(err)
		}
		return job
	}
	want := email.SendJob{
		OutboxID: ids[0].String(), CompanyID: b.company.String(), RequestID: "req-1", To: "ana@example.com", Subject: "Olá Ana de Recife",
		HTMLRef: "mailing:" + id.String(), ReplyTo: "help@acme.example", Tags: []string{"natal"},
		Recipient: email.JobRecipient{ExternalID: "C-1", CPFCNPJHash: hash, Nome: "Ana", Email: "ana@example.com"},
	}
	if diff := cmp.Diff(want, job(ids[0])); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	bia := recipient.ID(b.company, "", "", "bia@example.com")
	if got := job(ids[2]); got.Recipient.RecipientID != bia.String() || got.To != "bia@Example.com" {
		t.Errorf("a recipient without an identifier is not identified by the address: %+v", got.Recipient)
	}

	// The recipients are stored, and the CPF only with them.
	if known, err := b.Store.RecipientMatches(t.Context(), b.company, bia, "bia@example.com"); err != nil || !known {
		t.Errorf("bia is not known: %v", err)
	}
	b.want(t, "2", `SELECT count(*)::text FROM recipients`)
	b.want(t, "sealed ana.2@example.com", `SELECT convert_from(cpf_cnpj_enc, 'UTF8') || ' ' || email FROM recipients WHERE id = $1`, recipient.ID(b.company, "C-1", "", ""))
	b.want(t, "0", `SELECT count(*)::text FROM mailing_entries WHERE cpf_cnpj_enc IS NOT NULL`)
	b.want(t, "0", `SELECT count(*)::text FROM email_outbox WHERE cpf_cnpj_enc IS NOT NULL`)
	b.want(t, bia.String(), `SELECT recipient_id::text FROM mailing_entries WHERE id = $1`, ids[2])
}

func TestProcessor_NothingToExpand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, _ := b.mailing(t)
	if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "SENDING", `SELECT status FROM mailings WHERE expanded_at IS NOT NULL`)
}

// A list neither restores a deleted person nor sends to them.
func TestProcessor_DeletedRecipient(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	gone := recipient.ID(b.company, "C-1", "", "")
	b.exec(t, `INSERT INTO recipients (id, company_id, external_id, email, deleted_at) VALUES ($1, $2, 'C-1', 'old@example.com', now())`, gone, b.company)
	id, ids := b.mailing(t, entry{email: "ana@example.com", nome: "Ana", externalID: "C-1", hash: strings.Repeat("0a", 32), enc: []byte("sealed")})
	if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "old@example.com true true", `SELECT email || ' ' || (deleted_at IS NOT NULL) || ' ' || (cpf_cnpj_enc IS NULL) FROM recipients`)
	row, err := b.Store.NewLoader().Load(t.Context(), ids[0])
	if err != nil || row.RecipientKnown || !strings.Contains(string(row.Payload), gone.String()) {
		t.Errorf("the worker would send it: %s, %v", row.Payload, err)
	}
	b.want(t, "QUEUED", `SELECT status FROM mailing_entries WHERE cpf_cnpj_enc IS NULL`)
}

// Nor does it restore one who is deleted at the same moment.
func TestProcessor_RecipientDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	known := recipient.ID(b.company, "C-1", "", "")
	b.exec(t, `INSERT INTO recipients (id, company_id, external_id, email) VALUES ($1, $2, 'C-1', 'old@example.com')`, known, b.company)
	id, _ := b.mailing(t, entry{email: "ana@example.com", nome: "Ana", externalID: "C-1"})
	tx, err := b.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `UPDATE recipients SET deleted_at = now()`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- handle(t.Context(), b.params(), taskOf(id, 1)) }()
	waittest.Until(t, "the job waits for the lock, or has waited too long", func() bool {
		var waits bool
		err := b.SQL.QueryRowContext(t.Context(), `SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits)
		return len(done) > 0 || err == nil && waits
	})
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		wantUncounted(t, err)
		if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
			t.Fatal(err)
		}
	}
	b.want(t, "old@example.com true", `SELECT email || ' ' || (deleted_at IS NOT NULL) FROM recipients`)
}

// Once the row of a deleted person is purged nothing records the deletion: an older list restores
// no one, and is still sent to those who are not known as deleted.
func TestProcessor_ListOlderThanDeletedRecipients(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		age            time.Duration
		written        string // the recipients afterwards
		named, refused string // whose email has a recipientId, and whose email the worker refuses
	}{
		"older":   {recipient.DeletedKept + time.Hour, "eva", "eva gone", "gone"},
		"younger": {recipient.DeletedKept - time.Hour, "ana bia eva", "ana eva gone", "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec(t, `INSERT INTO recipients (id, company_id, external_id, email, deleted_at) VALUES ($1, $2, 'C-2', 'gone@example.com', now()), ($3, $2, NULL, 'eva@example.com', NULL)`,
				recipient.ID(b.company, "C-2", "", ""), b.company, recipient.ID(b.company, "", "", "eva@example.com"))
			id, _ := b.mailing(t, entry{email: "ana@example.com"}, entry{email: "bia@example.com", externalID: "C-1"},
				entry{email: "eva@example.com"}, entry{email: "gone@example.com", externalID: "C-2"})
			b.exec(t, `UPDATE mailing_entries SET id = (left(first_id_at($1)::text, 13) || right(id::text, 23))::uuid`, time.Now().Add(-tt.age)) // the id contains its creation time
			b.exec(t, `UPDATE mailings SET first_entry = e.ids[1], last_entry = e.ids[4] FROM (SELECT array_agg(id ORDER BY id) AS ids FROM mailing_entries) e`)
			if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
				t.Fatal(err)
			}
			b.want(t, "4", `SELECT count(*)::text FROM email_outbox WHERE status = 'PENDING'`)
			b.want(t, tt.written, `SELECT coalesce(string_agg(split_part(email, '@', 1), ' ' ORDER BY email), '') FROM recipients WHERE deleted_at IS NULL`)
			named := `SELECT string_agg(split_part(payload ->> 'to', '@', 1), ' ' ORDER BY payload ->> 'to') FROM email_outbox o WHERE payload #>> '{recipient,recipientId}' IS NOT NULL`
			b.want(t, tt.named, named)
			b.want(t, tt.refused, named+` AND NOT EXISTS (SELECT FROM recipients r WHERE r.id = (o.payload #>> '{recipient,recipientId}')::uuid AND r.deleted_at IS NULL)`)
		})
	}
}

// A list's data is as new as its upload, also where it repeats known data: an import that was
// accepted between two lists and is stored after both changes none of it, and fills in the rest.
func TestProcessor_ListDataDatesFromUpload(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	expand := func() {
		t.Helper()
		id, _ := b.mailing(t, many(1)...)
		if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
			t.Fatal(err)
		}
	}
	expand()
	before := `SELECT concat_ws('|', external_id, nome, email) FROM recipients`
	var known string
	if err := b.SQL.QueryRowContext(t.Context(), before).Scan(&known); err != nil {
		t.Fatal(err)
	}
	between := recipient.NewRecipient{OutboxID: uuid.Must(uuid.NewV7())}
	if err := b.SQL.QueryRowContext(t.Context(), `SELECT id, coalesce(external_id, '') FROM recipients`).Scan(&between.ID, &between.ExternalID); err != nil {
		t.Fatal(err)
	}
	between.Nome, between.Email, between.RazaoSocial = "Outra", "outra@example.com", "Outra Ltda"
	err := b.Store.AcceptRecipients(t.Context(), recipient.NewRecipients{CompanyID: b.company, RequestID: "r", CreatedAt: time.Now(), Recipients: []recipient.NewRecipient{between}})
	if err != nil {
		t.Fatal(err)
	}
	expand()
	if err := errors.Join(b.Store.UpsertRecipients(t.Context(), []uuid.UUID{between.OutboxID})...); err != nil {
		t.Fatal(err)
	}
	b.want(t, known+"|Outra Ltda", `SELECT concat_ws('|', external_id, nome, email, razao_social) FROM recipients`)
}

// After an erasure an older list restores no one, and a newer one creates a new person.
func TestProcessor_ErasedRecipient(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ana := entry{email: "ana@example.com", nome: "Ana", externalID: "C-1"}
	first, _ := b.mailing(t, ana)
	if err := handle(t.Context(), b.params(), taskOf(first, 1)); err != nil {
		t.Fatal(err)
	}
	before, _ := b.mailing(t, ana)
	recipientID := recipient.ID(b.company, "C-1", "", "")
	if erased, err := person.New(b.Store.DB()).EraseRecipients(t.Context(), b.company, uuid.Must(uuid.NewV7()), []uuid.UUID{recipientID}, true); err != nil || len(erased) != 1 {
		t.Fatal(erased, err)
	}
	b.want(t, "erased@erased.invalid false", `SELECT concat_ws('|', external_id, nome, email) || ' ' || (deleted_at IS NULL) FROM recipients`)
	if err := handle(t.Context(), b.params(), taskOf(before, 1)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "erased@erased.invalid false", `SELECT concat_ws('|', external_id, nome, email) || ' ' || (deleted_at IS NULL) FROM recipients`)
	after, _ := b.mailing(t, ana)
	if err := handle(t.Context(), b.params(), taskOf(after, 1)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "C-1|Ana|ana@example.com true", `SELECT concat_ws('|', external_id, nome, email) || ' ' || (deleted_at IS NULL) FROM recipients`)
}

func TestProcessor_LeadAndContinuation(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.mailing(t, many(12)...)
	p := b.params()
	p.BatchSize, p.Lead = 3, 5
	if err := handle(t.Context(), p, taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "5", `SELECT count(*)::text FROM email_outbox WHERE target = 'email:send'`)
	b.want(t, "QUEUED 2 true 5", `SELECT status || ' ' || generation || ' ' || (last_attempt IS NULL) || ' ' || processed_lines FROM mailings`)
	b.want(t, "true 2 infinity", `SELECT (next_at - created_at = interval '5 s') || ' ' || (payload ->> 'generation') || ' ' || expires_at FROM email_outbox WHERE target = 'mailing.process'`)
	b.want(t, "mailing.jobs.process file:///a", `SELECT l.queue || ' ' || (o.payload ->> 'storageUrl') FROM email_outbox o JOIN dispatch_lanes l ON l.id = o.lane_id WHERE target = 'mailing.process'`)

	// The lane is still full: another continuation, and nothing else.
	for _, task := range b.published(t) {
		if err := handle(t.Context(), p, task); err != nil {
			t.Fatal(err)
		}
	}
	b.want(t, "5 3", `SELECT (SELECT count(*) FROM email_outbox WHERE target = 'email:send') || ' ' || generation FROM mailings`)
	// The first job's message again: it is obsolete.
	if err := handle(t.Context(), p, taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		b.exec(t, `UPDATE email_outbox SET status = 'ENQUEUED' WHERE target = 'email:send' AND status = 'PENDING'`)
		for _, task := range b.published(t) {
			if err := handle(t.Context(), p, task); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.expandedOnce(t, id, len(ids))
}

func TestProcessor_JobTimeOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.mailing(t, many(10)...)
	p := b.params()
	p.BatchSize, p.JobTime = 4, time.Nanosecond
	if err := handle(t.Context(), p, taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "QUEUED 4 true", `SELECT m.status || ' ' || processed_lines || ' ' || (o.next_at = o.created_at) FROM mailings m, email_outbox o WHERE target = 'mailing.process'`)
	b.drain(t, p)
	b.expandedOnce(t, id, len(ids))
	b.want(t, "3", `SELECT generation::text FROM mailings`)
}

// A stop of the worker ends the job after the current batch.
func TestProcessor_Stopped(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]string{"while a batch is read": "NextEntries", "while it is written": "Expand", "before anything": "LockMailing"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			id, ids := b.mailing(t, many(10)...)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			p := b.params()
			p.BatchSize = 4
			p.Store = &steppedStore{Store: b.Store, before: func(step string) error {
				if step == at {
					stop()
				}
				return nil
			}}
			if err := handle(ctx, p, taskOf(id, 1)); err != nil {
				t.Fatal(err)
			}
			if at == "Expand" { // the current batch was written, and no other one started
				b.want(t, "4", `SELECT processed_lines::text FROM mailings`)
			} else {
				b.want(t, "0", `SELECT processed_lines::text FROM mailings`)
			}
			b.want(t, "QUEUED 2 true", `SELECT m.status || ' ' || m.generation || ' ' || (o.next_at = o.created_at) FROM mailings m, email_outbox o WHERE target = 'mailing.process'`)
			p = b.params()
			b.drain(t, p)
			b.expandedOnce(t, id, len(ids))
		})
	}
}

func TestProcessor_DeadLettersInvalidMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for payload, reason := range map[string]string{
		`nonsense`: email.CodeInvalidPayload,
		`{}`:       email.CodeInvalidPayload,
		`{"mailingId":"01990a2b-7c3d-7e4f-8a5b-6c7d8e9f0a1b"}`:                email.CodeInvalidPayload,
		`{"mailingId":"01990a2b-7c3d-7e4f-8a5b-6c7d8e9f0a1b","generation":1}`: email.CodeOutboxNotFound,
	} {
		task := queue.Task{ID: uuid.NewString(), Payload: []byte(payload)}
		if err := handle(t.Context(), b.params(), task); err != nil {
			t.Errorf("%s: %v", payload, err)
		}
		b.want(t, "mailing.process "+reason, `SELECT target || ' ' || reason FROM dead_letters WHERE outbox_id = $1`, task.ID)
	}
}

// Data about a person stored after the upload of the list is kept, however late the list is
// processed.
func TestProcessor_NewerThanTheList(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, _ := b.mailing(t, entry{email: "old@example.com", externalID: "C-1"})
	person := recipient.ID(b.company, "C-1", "", "old@example.com")
	b.exec(t, `INSERT INTO recipients (id, company_id, external_id, email, intake_id) VALUES ($1, $2, 'C-1', 'new@example.com', $3)`,
		person, b.company, uuid.Must(uuid.NewV7()))
	if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "new@example.com", `SELECT email FROM recipients`)
}
