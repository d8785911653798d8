package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// giveUp makes a FAILED email with its dead letter.
func giveUp(t *testing.T, d storetest.Database, company uuid.UUID, change func(*outbox.Transition)) uuid.UUID {
	t.Helper()
	id, token := d.Accept(t, company, nil), uuid.New()
	end := storetest.FailedOf(id, token)
	if change != nil {
		change(&end)
	}
	storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), end)
	return id
}

// letterOf is the newest dead letter of an outbox row.
func letterOf(t *testing.T, d storetest.Database, outboxID uuid.UUID) deadletter.Letter {
	t.Helper()
	found, err := d.Store.FindAnyDeadLetter(t.Context(),
		ask[uuid.UUID](t, d, `SELECT id FROM dead_letters WHERE outbox_id = $1 ORDER BY created_at DESC LIMIT 1`, outboxID))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// by is a person's retry.
func by(name string) deadletter.LetterRetry {
	return deadletter.LetterRetry{Actor: audit.Actor{By: audit.ByAPI, Name: name}, RequestID: "req-9", TTL: 6 * time.Hour}
}

func wantNotReplayable(t *testing.T, err error, reason string) {
	t.Helper()
	var refused *deadletter.NotReplayableError
	if !errors.As(err, &refused) || !strings.Contains(refused.Reason, reason) {
		t.Errorf("%v, want not replayable: %s", err, reason)
	}
}

// resolved returns the columns of a dead letter about its resolution.
func resolved(t *testing.T, d storetest.Database, id uuid.UUID) string {
	t.Helper()
	return ask[string](t, d, `SELECT concat_ws(' ', resolved_at IS NOT NULL, resolution, resolved_by, resolution_note, replay_id) FROM dead_letters WHERE id = $1`, id)
}

func TestRetryDeadLetter_Email(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for _, unknown := range []bool{false, true} {
		id := giveUp(t, d, company, func(end *outbox.Transition) { end.OutcomeUnknown = unknown })
		letter := letterOf(t, d, id)
		if err := d.Store.RetryDeadLetter(t.Context(), letter, by("key1")); err != nil {
			t.Fatal(err)
		}
		got := ask[string](t, d, `SELECT concat_ws(' ', status, attempts, throttles, possible_duplicate, round(extract(epoch FROM expires_at - now()) / 3600)) FROM email_outbox WHERE id = $1`, id)
		if want := fmt.Sprintf("PENDING 0 0 %c 6", fmt.Sprint(unknown)[0]); got != want {
			t.Errorf("the email: %s, want %s", got, want)
		}
		got = ask[string](t, d, `SELECT concat_ws(' ', type, metadata ->> 'by', metadata ->> 'keyId', metadata ->> 'requestId', metadata ->> 'deadLetterId')
			FROM email_events WHERE email_log_id = $1 ORDER BY seq DESC LIMIT 1`, id)
		if want := "REPLAYED api key1 req-9 " + letter.ID.String(); got != want {
			t.Errorf("its timeline: %s, want %s", got, want)
		}
		if got := resolved(t, d, letter.ID); got != "t retried api:key1" {
			t.Errorf("its dead letter: %s", got)
		}
		// A dead letter can be retried once.
		wantNotReplayable(t, d.Store.RetryDeadLetter(t.Context(), letter, by("key2")), "the email is PENDING")
		wantNotReplayable(t, d.Store.RetryDeadLetter(t.Context(), letterOf(t, d, id), by("key1")), "already resolved")
	}
}

func TestRetryDeadLetter_NothingThere(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	gone := giveUp(t, d, d.Company(t), nil)
	letter := letterOf(t, d, gone)
	run(t, d, `DELETE FROM email_outbox WHERE id = $1`, gone)
	wantNotReplayable(t, d.Store.RetryDeadLetter(t.Context(), letter, by("k")), "does not exist or has been deleted")
	for _, tt := range []struct{ target, taskID, reason string }{
		{email.TargetSend, uuid.NewString(), "does not exist"},
		{email.TargetSend, "unreadable", "refers to no email"},
		{email.TargetRecipients, uuid.NewString(), "does not exist"},
		{email.TargetMailing, uuid.NewString(), "refers to no email"},
		{"sms:send", uuid.NewString(), "refers to no email"},
	} {
		if err := d.Store.DeadLetterTask(t.Context(), deadletter.Task{Target: tt.target, Reason: "X", TaskID: tt.taskID}); err != nil {
			t.Fatal(err)
		}
		letter, err := d.Store.FindAnyDeadLetter(t.Context(), ask[uuid.UUID](t, d, `SELECT id FROM dead_letters WHERE reason = 'X'`))
		if err != nil {
			t.Fatal(err)
		}
		wantNotReplayable(t, d.Store.RetryDeadLetter(t.Context(), letter, by("k")), tt.reason)
		if got := resolved(t, d, letter.ID); got != "f" {
			t.Errorf("%v: %s", tt, got)
		}
		run(t, d, `DELETE FROM dead_letters WHERE reason = 'X'`)
	}
}

// A dead letter that was discarded or retried after a retry has read it is not retried, alone or in a group, although its email
// is FAILED.
func TestRetryDeadLetter_ResolvedMeanwhile(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	advancer := d.Store.NewAdvancer()
	t.Cleanup(advancer.Close)
	grouped := by("key2")
	grouped.Advance = advancer.Advance
	discarded, failedAgain := giveUp(t, d, company, nil), giveUp(t, d, company, nil)
	read := []deadletter.Letter{letterOf(t, d, discarded), letterOf(t, d, failedAgain)}
	if _, did, err := d.Store.DiscardOne(t.Context(), read[0], audit.Actor{By: audit.ByAPI, Name: "key1"}, ""); err != nil || !did {
		t.Fatal(did, err)
	}
	token := uuid.New()
	storetest.Apply(t, d, storetest.ReplayOf(failedAgain), storetest.ClaimOf(company, failedAgain, token, "C"), storetest.FailedOf(failedAgain, token))
	for _, how := range []deadletter.LetterRetry{by("key1"), grouped} {
		for _, letter := range read {
			wantNotReplayable(t, d.Store.RetryDeadLetter(t.Context(), letter, how), "already resolved")
		}
	}
	if got := ask[string](t, d, `SELECT string_agg(DISTINCT status, ' ') FROM email_outbox`); got != "FAILED" {
		t.Errorf("the emails are %s", got)
	}
	if err := d.Store.RetryDeadLetter(t.Context(), letterOf(t, d, failedAgain), grouped); err != nil {
		t.Errorf("the newer dead letter: %v", err)
	}
}

// If Postgres's response is lost, the statement is run again and finds its own change. That is a success, and not a dead letter
// that cannot be replayed.
func TestRetryDeadLetter_AnswerLost(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	p := storetest.NewProxy(t, d)
	s := open(t, p.URL, store.Options{MaxConns: 1})
	// The first one prepares the statement, so that the next answer is that of the retry.
	if err := s.RetryDeadLetter(t.Context(), letterOf(t, d, giveUp(t, d, company, nil)), by("key1")); err != nil {
		t.Fatal(err)
	}
	id := giveUp(t, d, company, nil)
	p.Cut(1)
	if err := s.RetryDeadLetter(t.Context(), letterOf(t, d, id), by("key1")); err != nil {
		t.Error(err)
	}
	if got := ask[string](t, d, `SELECT concat_ws(' ', status, (SELECT count(*) FROM email_events WHERE email_log_id = $1 AND type = 'REPLAYED')) FROM email_outbox WHERE id = $1`, id); got != "PENDING 1" {
		t.Errorf("the email: %s", got)
	}
}

// A retry with an Advancer, one of many, does not wait for an email that another transaction has locked.
func TestRetryDeadLetter_LockedEmail(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	id := giveUp(t, d, d.Company(t), nil)
	letter, advancer, tries := letterOf(t, d, id), d.Store.NewAdvancer(), 0
	t.Cleanup(advancer.Close)
	release := lock(t, d, `SELECT FROM email_outbox WHERE id = $1 FOR UPDATE`, id)
	bulk := by("key1")
	bulk.Advance = func(ctx context.Context, moved outbox.Transition) (outbox.Advanced, error) {
		tries++
		return advancer.Advance(ctx, moved)
	}
	if err := d.Store.RetryDeadLetter(t.Context(), letter, bulk); !errors.Is(err, outbox.ErrAggregateBusy) || tries != 1 {
		t.Errorf("while it is locked: %v after %d tries", err, tries)
	}
	release()
	if err := d.Store.RetryDeadLetter(t.Context(), letter, bulk); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// An import whose row another transaction has locked gets its dead letter later: its message's batch does not wait for it.
func TestDeadLetterImport_LockedRow(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	id := storetest.Intake(t, d, d.Company(t), storetest.KnownRecipient("1", "ana@example.com", "Ana"))[0]
	run(t, d, `UPDATE email_outbox SET status = 'PUBLISHED', processed_at = now()`)
	release := lock(t, d, `SELECT FROM email_outbox FOR UPDATE`)
	err := d.Store.DeadLetterImport(t.Context(), id, "REFUSED", "poison", 4)
	if refused := (*pq.Error)(nil); !errors.As(err, &refused) || refused.Code != pqerror.LockNotAvailable {
		t.Errorf("while it is locked: %v", err)
	}
	release()
	if err := d.Store.DeadLetterImport(t.Context(), id, "REFUSED", "poison", 4); err != nil {
		t.Error(err)
	}
	letterOf(t, d, id)
}

// A recipient import is published again and stored.
func TestRetryDeadLetter_Recipient(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	ids := storetest.Intake(t, d, company, storetest.KnownRecipient("1", "ana@example.com", "Ana"), storetest.KnownRecipient("2", "eva@example.com", "Eva"))
	run(t, d, `UPDATE email_outbox SET status = 'PUBLISHED', processed_at = now()`)
	for _, id := range ids {
		if err := d.Store.DeadLetterImport(t.Context(), id, "REFUSED", "poison", 4); err != nil {
			t.Fatal(err)
		}
	}
	letter := letterOf(t, d, ids[0])
	if err := d.Store.RetryDeadLetter(t.Context(), letter, by("key1")); err != nil {
		t.Fatal(err)
	}
	if got := ask[string](t, d, `SELECT concat_ws(' ', o.status, o.attempts, o.processed_at IS NULL, i.email, i.company_id = o.company_id)
		FROM email_outbox o JOIN recipient_intakes i ON i.outbox_id = o.id WHERE o.id = $1`, ids[0]); got != "PENDING 0 t ana@example.com t" {
		t.Errorf("the outbox row: %s", got)
	}
	if got := resolved(t, d, letter.ID); got != "t retried api:key1" {
		t.Errorf("its dead letter: %s", got)
	}
	wantNotReplayable(t, d.Store.RetryDeadLetter(t.Context(), letter, by("key2")), "is PENDING")
	storetest.Upsert(t, d, ids[0])
	if n := ask[int](t, d, `SELECT count(*) FROM recipients WHERE nome = 'Ana' AND deleted_at IS NULL`); n != 1 {
		t.Errorf("%d recipients", n)
	}

	// A person who was deleted in the meantime stays deleted.
	storetest.Upsert(t, d, storetest.Intake(t, d, company, storetest.KnownRecipient("2", "eva@example.com", "Eva"))...)
	person := ask[uuid.UUID](t, d, `SELECT id FROM recipients WHERE nome = 'Eva'`)
	if err := d.Store.DeleteRecipient(t.Context(), company, person); err != nil {
		t.Fatal(err)
	}
	wantNotReplayable(t, d.Store.RetryDeadLetter(t.Context(), letterOf(t, d, ids[1]), by("key1")), "deleted after")
}

// failedMailing returns a mailing of one entry whose job has failed for the last time, and its dead letter.
func failedMailing(t *testing.T, d storetest.Database, company uuid.UUID, filename string) (uuid.UUID, deadletter.Letter) {
	t.Helper()
	id := d.Mailing(t, company, 1, func(m *mailing.NewMailing) { m.Filename = filename })
	job, lock, err := d.Store.LockMailing(t.Context(), id, 1, time.Minute, time.Second)
	if err != nil || lock != mailing.Locked {
		t.Fatal(lock, err)
	}
	task := uuid.New()
	if _, err := d.Store.FailJob(t.Context(), &job, mailing.FailedJob{Reason: "MAILING_JOB_FAILED", TaskID: task.String(), Payload: []byte(`{}`), Last: true}); err != nil {
		t.Fatal(err)
	}
	return id, letterOf(t, d, task)
}

// A FAILED mailing is cancelled when it cannot be retried any more, as its tenant would cancel it.
func TestCancelDiscarded(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for name, tt := range map[string]struct {
		change func(id uuid.UUID, l deadletter.Letter) error
		want   string
	}{
		"open": {func(uuid.UUID, deadletter.Letter) error { return nil }, "FAILED"},
		"retried": {func(_ uuid.UUID, l deadletter.Letter) error {
			return d.Store.RetryDeadLetter(t.Context(), l, deadletter.LetterRetry{})
		}, "QUEUED"},
		"discarded": {func(_ uuid.UUID, l deadletter.Letter) error {
			_, err := d.Store.DiscardDeadLetterAs(t.Context(), storetest.Operator(), l)
			return err
		}, "CANCELLED cancel"},
		"expired": {func(_ uuid.UUID, l deadletter.Letter) error {
			run(t, d, `UPDATE dead_letters SET created_at = now() - interval '31 days' WHERE id = $1`, l.ID)
			_, err := d.Store.CleanBulkLetters(t.Context(), 10)
			return err
		}, "CANCELLED cancel"},
		"entries deleted": {func(id uuid.UUID, l deadletter.Letter) error {
			run(t, d, `UPDATE mailings SET entries_deleted_at = now() WHERE id = $1`, id)
			run(t, d, `DELETE FROM dead_letters WHERE id = $1`, l.ID)
			return nil
		}, "FAILED"},
	} {
		id, letter := failedMailing(t, d, company, name+".csv")
		if err := tt.change(id, letter); err != nil {
			t.Fatal(name, err)
		}
		for range 2 { // the second call changes nothing
			if _, err := d.Store.CancelDiscarded(t.Context(), 10); err != nil {
				t.Fatal(name, err)
			}
			if got := ask[string](t, d, `SELECT concat_ws(' ', status, settling) FROM mailings WHERE id = $1`, id); got != tt.want {
				t.Errorf("%s: %s, want %s", name, got, tt.want)
			}
		}
	}
}

func TestRetryDeadLetter_Mailing(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	failed := func(filename string) (uuid.UUID, deadletter.Letter) { return failedMailing(t, d, company, filename) }
	mailingID, letter := failed("a.csv")
	closed := `SELECT paused_at IS NOT NULL FROM dispatch_lanes WHERE mailing_id = $1`
	if !ask[bool](t, d, closed, mailingID) {
		t.Error("the emails of a FAILED mailing are still sent")
	}
	if err := d.Store.RetryDeadLetter(t.Context(), letter, by("key1")); err != nil {
		t.Fatal(err)
	}
	if got := ask[string](t, d, `SELECT concat_ws(' ', status, generation, (SELECT count(*) FROM email_outbox WHERE target = 'mailing.process' AND payload ->> 'generation' = '2')) FROM mailings WHERE id = $1`, mailingID); got != "QUEUED 2 1" {
		t.Errorf("the mailing: %s", got)
	}
	if got := resolved(t, d, letter.ID); got != "t retried api:key1" || ask[bool](t, d, closed, mailingID) {
		t.Errorf("its dead letter: %s, or its lane is closed", got)
	}
	wantNotReplayable(t, d.Store.RetryDeadLetter(t.Context(), letter, by("key2")), "the mailing is QUEUED")

	_, letter = failed("b.csv")
	d.Mailing(t, company, 1, func(m *mailing.NewMailing) { m.Filename = "b.csv" })
	wantNotReplayable(t, d.Store.RetryDeadLetter(t.Context(), letter, by("key1")), "filename")

	// While the company's mailings are paused, no dead letter starts one, by a tenant or an operator.
	_, letter = failed("e.csv")
	run(t, d, `UPDATE companies SET mailings_paused_at = now() WHERE id = $1`, company)
	for who, err := range map[string]error{
		"tenant":   d.Store.RetryDeadLetter(t.Context(), letter, by("key1")),
		"operator": d.Store.RetryDeadLetterAs(t.Context(), storetest.Operator(), letter, time.Hour),
	} {
		var paused *mailing.PausedError
		if !errors.As(err, &paused) || resolved(t, d, letter.ID) != "f" {
			t.Errorf("%s: %v, resolved %s", who, err, resolved(t, d, letter.ID))
		}
	}
	run(t, d, `UPDATE companies SET mailings_paused_at = NULL WHERE id = $1`, company)

	// One that is resumed or cancelled by its tenant is resolved as well.
	mailingID, letter = failed("c.csv")
	if _, err := d.Store.ResumeMailing(t.Context(), company, mailingID); err != nil {
		t.Fatal(err)
	}
	if got := resolved(t, d, letter.ID); got != "t retried" {
		t.Errorf("after a resume: %s", got)
	}
	mailingID, letter = failed("d.csv")
	if _, err := d.Store.CancelMailing(t.Context(), company, mailingID); err != nil {
		t.Fatal(err)
	}
	if got := resolved(t, d, letter.ID); got != "t discarded" {
		t.Errorf("after a cancel: %s", got)
	}
}

func TestDiscardDeadLetter(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	id := giveUp(t, d, d.Company(t), nil)
	letter := letterOf(t, d, id)
	for _, first := range []bool{true, false} {
		shown, did, err := d.Store.DiscardOne(t.Context(), letter, audit.Actor{By: audit.ByOperator, Name: "ana"}, "known\x00")
		if did != first || err != nil || shown.ID != letter.ID || *shown.Resolution != deadletter.Discarded || shown.Email == nil || shown.Email.Email.ID != id {
			t.Errorf("%+v, %v, %v", shown, did, err)
		}
	}
	if got := resolved(t, d, letter.ID); got != "t discarded gatewayctl:ana known" {
		t.Error(got)
	}
	if got := ask[string](t, d, `SELECT status FROM email_outbox WHERE id = $1`, id); got != "FAILED" {
		t.Errorf("the email is %s", got)
	}
	wantNotReplayable(t, d.Store.RetryDeadLetter(t.Context(), letterOf(t, d, id), by("k")), "already resolved")
	// A late success resolves the dead letter without an operator.
	late := giveUp(t, d, d.Company(t), nil)
	token := ask[uuid.UUID](t, d, `SELECT claim_token FROM email_outbox WHERE id = $1`, late)
	storetest.Apply(t, d, storetest.SentOf(late, token))
	if got := resolved(t, d, letterOf(t, d, late).ID); got != "t sent" {
		t.Error(got)
	}
}
