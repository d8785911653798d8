package reputation_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"email-gateway/shared/store/event"
	reputationstore "email-gateway/shared/store/reputation"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/reputation"
)

// timeout is how long a test waits for something that should happen soon.
const timeout = 3 * time.Minute

// TestGuard: two guards, as in two dispatchers, pause the mailings of a company once, while more companies
// than they check at a time are locked.
func TestGuard(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	d.Run(t, `UPDATE reputation_guard SET counts_from = now() - interval '1 day'`)
	const lockedCompanies = 12
	locked, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locked.Rollback() }()
	for range lockedCompanies {
		company := d.Company(t)
		complain(t, d, company, 200, 100)
		if _, err := locked.ExecContext(t.Context(), `UPDATE companies SET suspended_at = now() WHERE id = $1`, company); err != nil {
			t.Fatal(err)
		}
	}
	bad, good, warned := d.Company(t), d.Company(t), d.Company(t)
	complain(t, d, bad, 200, 5)
	complain(t, d, good, 200, 4)
	complain(t, d, warned, 800, 5)
	registry := prometheus.NewRegistry()
	rules := map[reputationstore.Rule]reputationstore.Thresholds{
		reputationstore.Complaints1h: {Warn: 5000, Pause: 10_000, MinSent: 200, MinEvents: 5}, reputationstore.Complaints24h: {Warn: 1500, Pause: 3000, MinSent: 1000, MinEvents: 10},
		reputationstore.Bounces1h: {Warn: 50_000, Pause: 100_000, MinSent: 200, MinEvents: 20}, reputationstore.Bounces24h: {Warn: 25_000, Pause: 50_000, MinSent: 1000, MinEvents: 50},
	}
	for i := range 2 {
		p := reputation.Params{
			Log: slog.New(slog.DiscardHandler), Enabled: true, Rules: rules,
			Store: reputationstore.New(d.Store.DB(), func(context.Context, uuid.UUID) error { return nil }), Registry: prometheus.NewRegistry(),
		}
		if i == 0 {
			p.Registry = registry
		}
		g := reputation.NewGuard(p)
		if err := g.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			if err := g.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	paused := func(company uuid.UUID) bool {
		return storetest.Ask[bool](t, d, `SELECT mailings_paused_at IS NOT NULL FROM companies WHERE id = $1`, company)
	}
	waittest.Until(t, "the company is paused", func() bool { return paused(bad) })
	waittest.Until(t, "all companies that are not locked are checked", func() bool {
		return storetest.Ask[int](t, d, `SELECT count(DISTINCT company_id) FROM reputation_feedback WHERE NOT checked`) == lockedCompanies
	})
	if paused(good) {
		t.Error("a company below the thresholds is paused")
	}
	if n := storetest.Ask[int](t, d, `SELECT count(*) FROM companies WHERE mailings_paused_at IS NOT NULL`); n != 1 {
		t.Errorf("%d companies paused", n)
	}
	waittest.Until(t, "the metric", func() bool {
		return testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP reputation_paused_companies Companies whose mailings the reputation guard has paused.
# TYPE reputation_paused_companies gauge
reputation_paused_companies 1
`), "reputation_paused_companies") == nil
	})
	if err := locked.Rollback(); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the companies that were locked are paused", func() bool {
		return storetest.Ask[int](t, d, `SELECT count(*) FROM companies WHERE mailings_paused_at IS NOT NULL`) == lockedCompanies+1
	})
	want := map[string]int{string(event.MailingsPaused): lockedCompanies + 1, string(event.ReputationWarning): 1}
	for kind, n := range want {
		if got := storetest.Ask[int](t, d, `SELECT count(*) FROM company_events WHERE type = $1`, kind); got != n {
			t.Errorf("%d events %s, want %d", got, kind, n)
		}
	}
}

// complain makes emails that the company has sent, and complaints about some.
func complain(t *testing.T, d storetest.Database, company uuid.UUID, sent, complaints int) {
	t.Helper()
	d.Run(t, `
		WITH ids AS MATERIALIZED (SELECT gen_random_uuid() AS id FROM generate_series(1, $2)), log AS (
			INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, sent_at, event_seq, last_event)
			SELECT id, $1, 'ana@example.com', 'Fatura', 'SENT', 1, 'r', now() + interval '1 day', now(), now(), 4, 'SENT' FROM ids
		)
		INSERT INTO email_events (email_log_id, seq, previous, type, created_at) SELECT id, 4, 'SENT_ATTEMPT', 'SENT', now() FROM ids`, company, sent)
	d.Run(t, `
		INSERT INTO ses_events (sns_message_id, kind, outbox_id, payload)
		SELECT gen_random_uuid()::text, 'Complaint', outbox_id, '{"complaintFeedbackType": "abuse"}' FROM email_logs WHERE company_id = $1 LIMIT $2`, company, complaints)
	d.Run(t, `UPDATE ses_events SET applied_at = now() WHERE applied_at IS NULL`)
	if _, err := event.New(d.Store.DB()).AssignPositions(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
}
