package mailing_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/worker/internal/mailing"
)

const numbers = `SELECT concat_ws(' ', status, 'queued', queued, 'sent', sent, 'failed', failed, 'unknown', unknown, 'suppressed', suppressed,
	'expired', expired, 'cancelled', cancelled, 'invalid', invalid_later) FROM mailings WHERE id = $1`

func (b bench) count(t *testing.T, id uuid.UUID) mailingstore.Tally {
	t.Helper()
	tally, err := b.Store.CountMailing(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return tally
}

// A mailing is complete when its last entry has ended, not before, and not when an ended entry is
// open again.
func TestCountMailing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	entries := append(many(8), entry{email: "bad", invalid: "syntax"}, entry{email: "x@gone.example"})
	id, ids := b.mailing(t, entries...)
	b.count(t, id)
	b.want(t, "QUEUED queued 0 sent 0 failed 0 unknown 0 suppressed 0 expired 0 cancelled 0 invalid 0", numbers, id)
	p := b.params()
	p.Domains = domains{"gone.example": {}}
	if err := handle(t.Context(), p, taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	if tally := b.count(t, id); !tally.Applied || tally.Completed {
		t.Errorf("%+v", tally)
	}
	b.want(t, "SENDING queued 8 sent 0 failed 0 unknown 0 suppressed 0 expired 0 cancelled 0 invalid 1", numbers, id)

	b.end(t, ids[0], b.claim(t, ids[0]), email.Sent, email.EventSent)
	b.end(t, ids[1], b.claim(t, ids[1]), email.Failed, email.EventFailed)
	b.end(t, ids[2], b.claim(t, ids[2]), email.Failed, email.EventOutcomeUnknown, email.EventFailed)
	b.advance(t, outbox.Transition{ID: ids[3], Guard: outbox.GuardOpen, Status: email.Suppressed, Events: events(email.EventSuppressed)})
	b.advance(t, outbox.Transition{ID: ids[4], Guard: outbox.GuardOpen, Status: email.Expired, Events: events(email.EventExpired)})
	b.advance(t, outbox.Transition{ID: ids[5], Guard: outbox.GuardOpen, Status: email.Cancelled, Events: events(email.EventCancelled)})
	b.end(t, ids[6], b.claim(t, ids[6]), email.RetryScheduled, email.EventRetryScheduled)
	b.exec(t, `UPDATE email_outbox SET next_at = now() WHERE id = $1`, ids[6])
	b.count(t, id)
	b.want(t, "SENDING queued 2 sent 1 failed 1 unknown 1 suppressed 1 expired 1 cancelled 1 invalid 1", numbers, id)
	b.want(t, "true", `SELECT (rate > 0)::text FROM mailings`)
	b.end(t, ids[6], b.claim(t, ids[6]), email.Sent, email.EventSent)
	last := b.claim(t, ids[7])
	b.count(t, id)
	b.want(t, "SENDING queued 1 sent 2 failed 1 unknown 1 suppressed 1 expired 1 cancelled 1 invalid 1", numbers, id)
	b.end(t, ids[7], last, email.Sent, email.EventSent)
	if tally := b.count(t, id); !tally.Completed {
		t.Errorf("%+v", tally)
	}
	b.want(t, "COMPLETED queued 0 sent 3 failed 1 unknown 1 suppressed 1 expired 1 cancelled 1 invalid 1", numbers, id)
	b.want(t, "0 true true", `SELECT rate || ' ' || (completed_at IS NOT NULL) || ' ' || (counted_at IS NOT NULL) FROM mailings`)

	// Late feedback: SES accepted one of the failed emails.
	b.end(t, ids[2], b.lastToken(t, ids[2]), email.Sent, email.EventSent)
	b.want(t, "true", `SELECT (counted_at IS NULL)::text FROM mailings`)
	b.count(t, id)
	b.want(t, "COMPLETED queued 0 sent 4 failed 1 unknown 0 suppressed 1 expired 1 cancelled 1 invalid 1", numbers, id)

	b.advance(t, outbox.Transition{ID: ids[1], Guard: outbox.GuardReplay, Status: email.Pending, Renew: time.Hour, Events: events(email.EventReplayed)})
	b.count(t, id)
	b.want(t, "SENDING queued 1 sent 4 failed 0 unknown 0 suppressed 1 expired 1 cancelled 1 invalid 1", numbers, id)
}

func (b bench) lastToken(t *testing.T, id uuid.UUID) uuid.UUID {
	t.Helper()
	return ask[uuid.UUID](t, b, `SELECT claim_token FROM email_outbox WHERE id = $1`, id)
}

// A replay is being written during the last count: whichever is first, the mailing is not complete.
func TestCountMailing_ReplayedMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.expanded(t, 1)
	b.end(t, ids[0], b.claim(t, ids[0]), email.Failed, email.EventFailed)
	tx, err := b.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	// The statements of a replay, in an open transaction.
	for _, statement := range []string{
		`UPDATE mailing_entries SET status = 'QUEUED'`,
		`UPDATE mailings SET counted_at = NULL`,
	} {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if tally := b.count(t, id); tally.Applied || tally.Completed {
		t.Errorf("%+v", tally)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	b.count(t, id)
	b.want(t, "SENDING", `SELECT status FROM mailings`)
}

// A mailing that is being settled is not complete; one that has been settled is counted until its
// numbers are final.
func TestCountMailing_NotSending(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change        string
		status        string
		completed, to bool // counted until final: the numbers are up to date
	}{
		"sending":                {`status = 'SENDING'`, "COMPLETED", true, true},
		"being settled":          {`status = 'SENDING', settling = 'retry-failed'`, "SENDING", false, true},
		"paused":                 {`status = 'PAUSED'`, "PAUSED", false, true},
		"cancelled, not settled": {`status = 'CANCELLED', settling = 'cancel'`, "CANCELLED", false, false},
		"cancelled":              {`status = 'CANCELLED'`, "CANCELLED", false, true},
		"failed":                 {`status = 'FAILED'`, "FAILED", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			id, ids := b.expanded(t, 2)
			b.end(t, ids[0], b.claim(t, ids[0]), email.Sent, email.EventSent)
			b.exec(t, `UPDATE mailings SET counted_at = NULL, `+tt.change)
			b.count(t, id) // one entry has not ended
			if got := ask[bool](t, b, `SELECT counted_at IS NOT NULL FROM mailings`); got != (tt.status != "CANCELLED") {
				t.Errorf("up to date: %v", got)
			}
			b.end(t, ids[1], b.claim(t, ids[1]), email.Sent, email.EventSent)
			b.exec(t, `UPDATE mailings SET counted_at = NULL`)
			if tally := b.count(t, id); tally.Completed != tt.completed || tally.Sent != 2 {
				t.Errorf("%+v", tally)
			}
			b.want(t, tt.status+" 2", `SELECT status || ' ' || sent FROM mailings`)
			if got := ask[bool](t, b, `SELECT counted_at IS NOT NULL FROM mailings`); got != tt.to {
				t.Errorf("up to date: %v", got)
			}
		})
	}
}

func TestCounter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.expanded(t, 3)
	dry, _ := b.mailing(t, many(2)...)
	b.exec(t, `UPDATE mailings SET dry_run = true, status = 'COMPLETED', counted_at = NULL WHERE id = $1`, dry)
	for range 2 {
		start(t, mailing.NewCounter(mailing.CounterParams{Log: slog.New(slog.DiscardHandler), Store: b.Store, Registry: prometheus.NewRegistry()}))
	}
	storetest.WaitFor(t, b.Database, `SELECT queued = 3 FROM mailings WHERE id = $1`, id)
	for _, entry := range ids {
		b.end(t, entry, b.claim(t, entry), email.Sent, email.EventSent)
	}
	storetest.WaitFor(t, b.Database, `SELECT status = 'COMPLETED' AND sent = 3 FROM mailings WHERE id = $1`, id)
	b.want(t, "true", `SELECT (counted_at IS NULL)::text FROM mailings WHERE id = $1`, dry)

	// Feedback counts after the end too, and moves an email from one count to another.
	report := func(entry uuid.UUID, kind string) {
		t.Helper()
		id := uuid.NewString()
		b.exec(t, `INSERT INTO ses_events (sns_message_id, kind, outbox_id, occurred_at) VALUES ($1, $2, $3, now())`, id, kind, entry)
		b.exec(t, `UPDATE ses_events SET applied_at = now() WHERE sns_message_id = $1`, id)
	}
	for _, entry := range ids {
		report(entry, "Delivery")
	}
	storetest.WaitFor(t, b.Database, `SELECT delivered = 3 FROM mailings WHERE id = $1`, id)
	report(ids[0], "Bounce")
	report(ids[1], "Complaint")
	storetest.WaitFor(t, b.Database, `SELECT delivered = 1 AND bounced = 1 AND complained = 1 AND status = 'COMPLETED' FROM mailings WHERE id = $1`, id)
	b.want(t, "0", `SELECT count(*)::text FROM mailing_feedback`)
}

// A paused mailing is counted only after a change: an email in flight at the pause, one that
// expires, one that is cancelled. When its numbers are up to date it is not listed.
func TestCounter_Paused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, ids := b.expanded(t, 5)
	flying := b.claim(t, ids[0])
	if _, err := b.Store.PauseMailing(t.Context(), b.company, id); err != nil {
		t.Fatal(err)
	}
	listed := func() bool {
		t.Helper()
		open, err := b.Store.OpenMailings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(open) == 1
	}
	b.count(t, id)
	if !listed() {
		t.Error("not listed right after the pause, although an email that was in flight may end")
	}
	b.exec(t, `UPDATE mailings SET updated_at = updated_at - interval '1 h'`)
	if listed() {
		t.Error("listed though nothing changed since its count")
	}
	for _, change := range []struct {
		make func()
		want string
	}{
		{
			func() { b.end(t, ids[0], flying, email.Sent, email.EventSent) },
			"PAUSED queued 4 sent 1 failed 0 unknown 0 suppressed 0 expired 0 cancelled 0 invalid 0",
		},
		{func() {
			b.exec(t, `UPDATE email_outbox SET expires_at = now() WHERE id = $1`, ids[1])
			b.advance(t, outbox.Transition{ID: ids[1], Guard: outbox.GuardOverdue, Status: email.Expired, Events: events(email.EventExpired)})
		}, "PAUSED queued 3 sent 1 failed 0 unknown 0 suppressed 0 expired 1 cancelled 0 invalid 0"},
		{func() {
			b.advance(t, outbox.Transition{ID: ids[2], Guard: outbox.GuardOpen, Status: email.Cancelled, Events: events(email.EventCancelled)})
		}, "PAUSED queued 2 sent 1 failed 0 unknown 0 suppressed 0 expired 1 cancelled 1 invalid 0"},
	} {
		change.make()
		if !listed() {
			t.Errorf("not listed after a change that leads to %s", change.want)
		}
		b.count(t, id)
		b.want(t, change.want, numbers, id)
		if listed() {
			t.Errorf("listed though its numbers are up to date: %s", change.want)
		}
	}
	if _, err := b.Store.ResumeMailing(t.Context(), b.company, id); err != nil {
		t.Fatal(err)
	}
	if !listed() {
		t.Error("not listed after it was resumed")
	}
}

// The counter does not recount an unchanged paused mailing while it counts another one.
func TestCounter_SkipsUnchangedPausedMailing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	paused, _ := b.expanded(t, 2)
	if _, err := b.Store.PauseMailing(t.Context(), b.company, paused); err != nil {
		t.Fatal(err)
	}
	b.count(t, paused)
	b.exec(t, `UPDATE mailings SET updated_at = updated_at - interval '1 h', counted_at = counted_at - interval '30 min'`)
	counted := ask[time.Time](t, b, `SELECT counted_at FROM mailings`)
	other, ids := b.expanded(t, 2)
	start(t, mailing.NewCounter(mailing.CounterParams{Log: slog.New(slog.DiscardHandler), Store: b.Store, Registry: prometheus.NewRegistry()}))
	for sent, entry := range ids { // each change is seen by a later round
		b.end(t, entry, b.claim(t, entry), email.Sent, email.EventSent)
		storetest.WaitFor(t, b.Database, `SELECT sent = $2 FROM mailings WHERE id = $1`, other, sent+1)
	}
	if now := ask[time.Time](t, b, `SELECT counted_at FROM mailings WHERE id = $1`, paused); !now.Equal(counted) {
		t.Errorf("counted at %s again, after %s", now, counted)
	}
}
