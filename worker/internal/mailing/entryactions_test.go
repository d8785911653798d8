package mailing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/email"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/fairloop"
	"email-gateway/worker/internal/mailing"
)

func (b bench) applyActions(t *testing.T, advancer mailing.Advancer) {
	t.Helper()
	start(t, mailing.NewEntryActionLoop(mailing.EntryActionLoopParams{
		Log: slog.New(slog.DiscardHandler), Store: b.Store, Advancer: advancer, Registry: prometheus.NewRegistry(),
	}))
}

// expanded is a mailing in SENDING whose entries are emails.
func (b bench) expanded(t *testing.T, n int) (uuid.UUID, []uuid.UUID) {
	t.Helper()
	id, ids := b.mailing(t, many(n)...)
	if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	return id, ids
}

// claim claims an email and returns the token.
func (b bench) claim(t *testing.T, id uuid.UUID) uuid.UUID {
	t.Helper()
	token := uuid.New()
	b.advance(t, outbox.Transition{
		ID: id, Guard: outbox.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1, Events: events(email.EventReceived, email.EventValidated, email.EventSentAttempt),
	})
	return token
}

// end ends the attempt.
func (b bench) end(t *testing.T, id, token uuid.UUID, status email.Status, types ...email.EventType) {
	t.Helper()
	b.advance(t, outbox.Transition{
		ID: id, Guard: outbox.GuardAttempt, Token: token, Status: status, DeadLetter: status == email.Failed, ErrorCode: "TEST",
		OutcomeUnknown: types[0] == email.EventOutcomeUnknown, Events: events(types...), Duration: time.Second,
	})
}

func (b bench) advance(t *testing.T, transition outbox.Transition) {
	t.Helper()
	if got, err := b.Store.Advance(t.Context(), transition); err != nil || !got.Applied {
		t.Fatalf("%s: %+v, %v", transition.Status, got, err)
	}
}

func events(types ...email.EventType) []email.Event {
	list := make([]email.Event, len(types))
	for i, kind := range types {
		list[i] = email.Event{Type: kind, At: time.Now().UTC()}
	}
	return list
}

func TestEntryActionLoop_Cancel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	entries := many(9)
	entries[1].enc, entries[1].hash = []byte("sealed"), ""
	id, ids := b.mailing(t, entries...)
	p := b.params()
	p.BatchSize, p.Lead = 6, 6 // three entries are not emails yet
	if err := handle(t.Context(), p, taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	b.exec(t, `UPDATE mailing_entries SET cpf_cnpj_enc = 'sealed' WHERE id = $1`, ids[8])
	b.exec(t, `UPDATE email_outbox SET status = 'ENQUEUED' WHERE id = $1`, ids[1])
	retried := b.claim(t, ids[2])
	b.end(t, ids[2], retried, email.RetryScheduled, email.EventRetryScheduled)
	sent := b.claim(t, ids[3])
	b.end(t, ids[3], sent, email.Sent, email.EventSent)
	later := b.claim(t, ids[4])
	worked := b.claim(t, ids[5])

	if _, err := b.Store.CancelMailing(t.Context(), b.company, id); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.applyActions(t, b.Store.NewAdvancer())
	}
	storetest.WaitFor(t, b.Database, `SELECT count(*) = 6 FROM mailing_entries WHERE status = 'CANCELLED'`)
	b.want(t, "CANCELLED CANCELLED CANCELLED SENT QUEUED QUEUED CANCELLED CANCELLED CANCELLED", `SELECT string_agg(status, ' ' ORDER BY id) FROM mailing_entries`)
	b.want(t, "CANCELLED CANCELLED CANCELLED SENT PROCESSING PROCESSING", `SELECT string_agg(status, ' ' ORDER BY id) FROM email_outbox WHERE target = 'email:send'`)
	b.want(t, "cancel", `SELECT settling FROM mailings`)
	b.want(t, "0", `SELECT count(*)::text FROM mailing_entries WHERE cpf_cnpj_enc IS NOT NULL`)

	// Claimed emails end normally, or are retried and cancelled.
	b.end(t, ids[4], later, email.RetryScheduled, email.EventRetryScheduled)
	b.end(t, ids[5], worked, email.Sent, email.EventSent)
	storetest.WaitFor(t, b.Database, `SELECT settling IS NULL FROM mailings`)
	b.want(t, "CANCELLED SENT", `SELECT string_agg(status, ' ' ORDER BY id) FROM mailing_entries WHERE id IN ($1, $2)`, ids[4], ids[5])
	b.want(t, "CANCELLED true true", `SELECT status || ' ' || (settled_to IS NULL) || ' ' || (counted_at IS NULL) FROM mailings`)
	timeline, err := b.Store.Timeline(t.Context(), ids[0])
	if err != nil || len(timeline) != 1 || timeline[0].Type != email.EventCancelled {
		t.Errorf("%+v, %v", timeline, err)
	}
	b.want(t, id.String(), `SELECT metadata ->> 'mailingId' FROM email_events WHERE email_log_id = $1`, ids[0])
}

func TestEntryActionLoop_RetryFailed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.expanded(t, 5)
	for i, end := range [][]email.EventType{{email.EventFailed}, {email.EventFailed}, {email.EventOutcomeUnknown, email.EventFailed}, {email.EventSent}} {
		status := email.Failed
		if end[0] == email.EventSent {
			status = email.Sent
		}
		b.end(t, ids[i], b.claim(t, ids[i]), status, end...)
	}
	b.exec(t, `UPDATE mailings SET failed = 2`)
	if _, err := b.Store.RetryFailedEntries(t.Context(), b.company, id); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.applyActions(t, b.Store.NewAdvancer())
	}
	storetest.WaitFor(t, b.Database, `SELECT settling IS NULL FROM mailings`)
	b.want(t, "QUEUED QUEUED FAILED SENT QUEUED", `SELECT string_agg(status, ' ' ORDER BY id) FROM mailing_entries`)
	b.want(t, "PENDING PENDING FAILED SENT PENDING", `SELECT string_agg(status, ' ' ORDER BY id) FROM email_outbox`)
	b.want(t, "2", `SELECT count(*)::text FROM email_outbox WHERE attempts = 0 AND expires_at > now() + interval '9 years' AND id = ANY (ARRAY[$1, $2]::uuid[])`, ids[0], ids[1])
	b.want(t, "1 1", `SELECT (SELECT count(*) FROM email_events WHERE email_log_id = $1 AND type = 'REPLAYED') || ' ' ||
		(SELECT count(*) FROM email_events WHERE email_log_id = $2 AND type = 'REPLAYED')`, ids[0], ids[1])
	b.want(t, "SENDING", `SELECT status FROM mailings`)
	b.want(t, "1", `SELECT count(*)::text FROM dead_letters WHERE resolved_at IS NULL`)
}

// More than one round, while one email cannot be written and another process dies.
func TestEntryActionLoop_RoundsAndErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.expanded(t, 1400)
	if _, err := b.Store.CancelMailing(t.Context(), b.company, id); err != nil {
		t.Fatal(err)
	}
	broken := &brokenAdvancer{Advancer: b.Store.NewAdvancer(), id: ids[700]}
	b.applyActions(t, broken)
	storetest.WaitFor(t, b.Database, `SELECT count(*) = 1399 FROM mailing_entries WHERE status = 'CANCELLED'`)
	b.want(t, "cancel", `SELECT settling FROM mailings`)
	broken.repair()
	storetest.WaitFor(t, b.Database, `SELECT settling IS NULL FROM mailings`)
	b.want(t, "1400 1400", `SELECT count(*) || ' ' || (SELECT count(*) FROM email_events WHERE type = 'CANCELLED') FROM mailing_entries WHERE status = 'CANCELLED'`)
}

// Some emails are locked while the failed ones are sent again: the others, more than a round of
// them, are sent meanwhile, and these after the lock is gone.
func TestEntryActionLoop_RetryFailedSkipsLockedEmails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const n = 1300
	id, ids := b.expanded(t, n)
	advancer := b.Store.NewAdvancer()
	var ending errgroup.Group
	for _, id := range ids {
		ending.Go(func() error {
			_, err := advancer.Advance(t.Context(), outbox.Transition{
				ID: id, Guard: outbox.GuardOpen, Status: email.Expired, Events: events(email.EventExpired),
			})
			return err
		})
	}
	if err := ending.Wait(); err != nil {
		t.Fatal(err)
	}
	b.exec(t, `UPDATE mailings SET expired = $1`, n)
	tx, err := b.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM email_outbox WHERE id IN ($1, $2) FOR UPDATE`, ids[0], ids[700]); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Store.RetryFailedEntries(t.Context(), b.company, id); err != nil {
		t.Fatal(err)
	}
	b.applyActions(t, advancer)
	storetest.WaitFor(t, b.Database, `SELECT count(*) = 1298 FROM mailing_entries WHERE status = 'QUEUED'`)
	b.want(t, "retry-failed", `SELECT settling FROM mailings`)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	storetest.WaitFor(t, b.Database, `SELECT settling IS NULL FROM mailings`)
	b.want(t, "1300 1300", `SELECT count(*) || ' ' || (SELECT count(*) FROM email_events WHERE type = 'REPLAYED') FROM mailing_entries WHERE status = 'QUEUED'`)
}

// firstRound is a store that calls during in its first round.
type firstRound struct {
	mailing.EntryActionStore
	during func()
	mu     sync.Mutex
	rounds []uuid.UUID // the mailings of the rounds
}

func (m *firstRound) ApplyEntryAction(
	ctx context.Context, id uuid.UUID, limit int, move func(context.Context, mailingstore.EntryAction, []uuid.UUID) ([]uuid.UUID, error),
) (mailingstore.EntryActionResult, error) {
	m.mu.Lock()
	m.rounds = append(m.rounds, id)
	first := len(m.rounds) == 1
	m.mu.Unlock()
	if first {
		m.during()
	}
	return m.EntryActionStore.ApplyEntryAction(ctx, id, limit, move)
}

// A company cancels many mailings at once. The failed entries of another company, which asks for that meanwhile, are sent again
// after a pass of a second and not after all of these.
func TestEntryActionLoop_CompaniesTakeTurns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := bench{b.Database, b.Company(t)}
	failed, ids := other.expanded(t, 1)
	other.end(t, ids[0], other.claim(t, ids[0]), email.Failed, email.EventFailed)
	b.exec(t, `UPDATE mailings SET failed = 1`)
	const n = 30
	for range n {
		id, _ := b.mailing(t, many(1)...)
		if _, err := b.Store.CancelMailing(t.Context(), b.company, id); err != nil {
			t.Fatal(err)
		}
	}
	s := &firstRound{EntryActionStore: b.Store, during: func() {
		began := time.Now()
		if _, err := b.Store.RetryFailedEntries(t.Context(), other.company, failed); err != nil {
			t.Error(err)
		}
		waittest.Until(t, "the time of a pass is over", func() bool { return time.Since(began) >= fairloop.PassTime })
	}}
	start(t, mailing.NewEntryActionLoop(mailing.EntryActionLoopParams{
		Log: slog.New(slog.DiscardHandler), Store: s, Advancer: b.Store.NewAdvancer(), Registry: prometheus.NewRegistry(),
	}))
	storetest.WaitFor(t, b.Database, `SELECT count(*) = 0 FROM mailings WHERE settling IS NOT NULL`)
	b.want(t, "PENDING", `SELECT status FROM email_outbox WHERE id = $1`, ids[0])
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.rounds, failed); at < 0 || at > 3 {
		t.Errorf("its round is number %d of %d", at+1, len(s.rounds))
	}
}

// A round belongs to one process, a crash in it loses nothing, and the next round takes the same
// entries.
func TestApplyEntryAction_OneProcessPerRound(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.expanded(t, 5)
	if _, err := b.Store.CancelMailing(t.Context(), b.company, id); err != nil {
		t.Fatal(err)
	}
	died := errors.New("died")
	var seen []string
	round := func(limit int, err error) (mailingstore.EntryActionResult, error) {
		return b.Store.ApplyEntryAction(t.Context(), id, limit, func(ctx context.Context, kind mailingstore.EntryAction, emails []uuid.UUID) ([]uuid.UUID, error) {
			seen = append(seen, fmt.Sprintf("%s of %d from the first: %v", kind, len(emails), emails[0] == ids[0]))
			if other, err := b.Store.ApplyEntryAction(ctx, id, limit, nil); err != nil || other.Kind != "" {
				t.Errorf("another process is let in: %+v, %v", other, err)
			}
			return nil, err
		})
	}
	if _, err := round(3, died); !errors.Is(err, died) {
		t.Errorf("%v", err)
	}
	for i, want := range []mailingstore.EntryActionResult{{Kind: mailingstore.ActionCancel, More: true}, {Kind: mailingstore.ActionCancel, Left: true}} {
		if got, err := round(3, nil); err != nil || got != want {
			t.Errorf("round %d: %+v, %v", i, got, err)
		}
	}
	want := []string{"cancel of 3 from the first: true", "cancel of 3 from the first: true", "cancel of 2 from the first: false"}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// brokenAdvancer cannot write one email until it is repaired.
type brokenAdvancer struct {
	mailing.Advancer
	mu sync.Mutex
	id uuid.UUID
}

func (a *brokenAdvancer) repair() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.id = uuid.Nil
}

func (a *brokenAdvancer) Advance(ctx context.Context, t outbox.Transition) (outbox.Advanced, error) {
	a.mu.Lock()
	broken := t.ID == a.id
	a.mu.Unlock()
	if broken {
		return outbox.Advanced{}, errors.New("cannot be written")
	}
	return a.Advancer.Advance(ctx, t)
}

// Another session has locked the row of a cancelled mailing, and an entry of another one. All other entries are
// cancelled meanwhile, and these when their rows are free.
func TestEntryActionLoop_LockedRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	locked, _ := b.mailing(t, many(3)...)
	other, entries := b.mailing(t, many(3)...)
	for _, id := range []uuid.UUID{locked, other} {
		if _, err := b.Store.CancelMailing(t.Context(), b.company, id); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := b.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for id, lock := range map[uuid.UUID]string{
		locked:     `SELECT FROM mailings WHERE id = $1 FOR UPDATE`,
		entries[1]: `SELECT FROM mailing_entries WHERE id = $1 FOR UPDATE`,
	} {
		if _, err := tx.ExecContext(t.Context(), lock, id); err != nil {
			t.Fatal(err)
		}
	}
	b.applyActions(t, b.Store.NewAdvancer())
	storetest.WaitFor(t, b.Database, `SELECT count(*) = 2 FROM mailing_entries WHERE mailing_id = $1 AND status = 'CANCELLED'`, other)
	b.want(t, "PENDING", `SELECT status FROM mailing_entries WHERE id = $1`, entries[1])
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	storetest.WaitFor(t, b.Database, `SELECT count(*) = 6 AND NOT EXISTS (SELECT FROM mailings WHERE settling IS NOT NULL) FROM mailing_entries WHERE status = 'CANCELLED'`)
}
