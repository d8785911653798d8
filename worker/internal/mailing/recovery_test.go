package mailing_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store/storetest"
	"email-gateway/worker/internal/mailing"
)

func (b bench) recover(t *testing.T, n int) {
	t.Helper()
	for range n {
		start(t, mailing.NewRecovery(mailing.RecoveryParams{
			Log: slog.New(slog.DiscardHandler), Store: b.Store, Registry: prometheus.NewRegistry(),
			Interval: 20 * time.Millisecond, StaleAfter: 30 * time.Second,
		}))
	}
}

func TestRecovery_Stale(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dead, ids := b.mailing(t, many(5)...)
	mute, _ := b.mailing(t, many(2)...)
	live, _ := b.mailing(t, many(2)...)
	b.exec(t, `UPDATE mailings SET status = 'PROCESSING', last_attempt = now() - interval '31 s', generation = 4 WHERE id = $1`, dead)
	b.exec(t, `UPDATE mailings SET status = 'PROCESSING' WHERE id = $1`, mute)
	b.exec(t, `UPDATE mailings SET status = 'PROCESSING', last_attempt = now() WHERE id = $1`, live)
	b.recover(t, 2)
	storetest.WaitFor(t, b.Database, `SELECT count(*) = 2 FROM mailings WHERE status = 'PENDING' AND last_attempt IS NULL`)
	b.want(t, "5 2 1", `SELECT (SELECT generation FROM mailings WHERE id = $1) || ' ' || (SELECT generation FROM mailings WHERE id = $2) || ' ' ||
		(SELECT generation FROM mailings WHERE id = $3 AND status = 'PROCESSING')`, dead, mute, live)
	b.want(t, "2", `SELECT count(*)::text FROM email_outbox o JOIN mailings m ON m.id::text = o.payload ->> 'mailingId'
		WHERE (o.payload ->> 'generation')::int = m.generation AND o.next_at <= now() AND o.status = 'PENDING'`)
	// The old job's message is obsolete, the new job continues.
	if err := handle(t.Context(), b.params(), taskOf(dead, 4)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "0", `SELECT count(*)::text FROM email_outbox WHERE target = 'email:send'`)
	b.drain(t, b.params())
	b.want(t, "SENDING 5", `SELECT status || ' ' || processed_lines FROM mailings WHERE id = $1 AND last_entry = $2`, dead, ids[4])
}

// A message that RabbitMQ has lost is published again, but not one that is still in the outbox, or
// may still be queued.
func TestRecovery_Lost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, tt := range map[string]struct {
		change string
		lost   bool
	}{
		"long ago":                   {`updated_at = now() - interval '5 min'`, true},
		"long ago, after a recovery": {`status = 'PENDING', updated_at = now() - interval '5 min'`, true},
		"just now":                   {`updated_at = now() - interval '90 s'`, false},
		"scheduled":                  {`updated_at = now() - interval '5 min', send_at = now() + interval '1 h'`, false},
		"scheduled for a while ago":  {`updated_at = now() - interval '5 h', send_at = now() - interval '1 h'`, true},
		"paused":                     {`status = 'PAUSED', updated_at = now() - interval '5 min'`, false},
		"all its emails are queued":  {`status = 'SENDING', updated_at = now() - interval '5 min'`, false},
		"failed":                     {`status = 'FAILED', updated_at = now() - interval '5 min'`, false},
	} {
		id, _ := b.mailing(t, many(1)...)
		b.exec(t, `UPDATE mailings SET filename = $2, fields = CASE WHEN $3 THEN '{lost}' ELSE fields END, `+tt.change+` WHERE id = $1`, id, name, tt.lost)
	}
	// Each had a published job.
	b.exec(t, `INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, status, processed_at, expires_at)
		SELECT gen_random_uuid(), m.company_id, l.id, 'mailing.process', 'r', jsonb_build_object('mailingId', m.id), 'PUBLISHED', now(), 'infinity'
		FROM mailings m JOIN dispatch_lanes l ON l.queue = 'mailing.jobs.process'`)
	waiting, _ := b.mailing(t, many(1)...)
	b.exec(t, `UPDATE mailings SET updated_at = now() - interval '5 min' WHERE id = $1`, waiting)
	b.exec(t, `INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, next_at, expires_at)
		SELECT gen_random_uuid(), company_id, id, 'mailing.process', 'r', jsonb_build_object('mailingId', $1::text), now() + interval '1 h', 'infinity'
		FROM dispatch_lanes WHERE queue = 'mailing.jobs.process'`, waiting.String())
	b.recover(t, 2)
	storetest.WaitFor(t, b.Database, `SELECT count(*) = 3 FROM mailings WHERE status = 'PENDING' AND fields = '{lost}' AND updated_at > now() - interval '1 min'`)
	// A mailing that has a new job does not get another one; give the loops time to fail.
	b.exec(t, `SELECT pg_sleep(0.2)`)
	b.want(t, "4", `SELECT count(*)::text FROM email_outbox WHERE status = 'PENDING'`)
	b.want(t, "3", `SELECT count(*)::text FROM email_outbox o JOIN mailings m ON m.id::text = o.payload ->> 'mailingId'
		WHERE m.fields = '{lost}' AND o.status = 'PENDING' AND o.payload ->> 'generation' = '1' AND m.generation = 1`)
}
