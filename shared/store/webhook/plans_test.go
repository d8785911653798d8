package webhook_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store"
	"email-gateway/shared/store/sql"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/webhook"
)

// grow fills the tables: 1,000 endpoints of 50 companies, a feed of 40,000 rows, and an endpoint that has
// 20,000 deliveries, most of which have ended.
func grow(t *testing.T, d storetest.Database, s *webhook.Store) (company, endpoint uuid.UUID) {
	t.Helper()
	for range 50 {
		company = d.Company(t)
	}
	d.Run(t, `
INSERT INTO webhook_endpoints (id, company_id, slot, url, secret_enc, feed_position, due_at)
SELECT gen_random_uuid(), c.id, n, 'https://hooks.acme.example', 'x', 40000, CASE WHEN n = 1 THEN now() + interval '1 h' END
FROM companies c, generate_series(1, 19) n`)
	endpoint = newEndpoint(t, s, company)
	d.Run(t, `
INSERT INTO event_feed (company_id, position, email_ids, first_seqs, last_seqs)
SELECT c.id, n, ARRAY[gen_random_uuid()], '{1}', '{1}' FROM generate_series(1, 40000) n
JOIN (SELECT id, row_number() OVER (ORDER BY id) AS nth FROM companies) c ON c.nth = 1 + n % 50`)
	d.Run(t, `UPDATE event_positions SET newest = 40000`)
	d.Run(t, `
INSERT INTO webhook_deliveries (id, endpoint_id, company_id, event_id, type, position, email_id, status, attempts, next_at)
SELECT ('0190' || substr(md5(n::text), 1, 4) || '-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, $1, $2, 'e' || n, 'email.sent', n, gen_random_uuid(), s.status, CASE s.status WHEN 'WAITING' THEN 0 ELSE 1 END, CASE s.status WHEN 'RETRYING' THEN now() - interval '1 s' END
FROM generate_series(1, 20000) n
CROSS JOIN LATERAL (SELECT CASE n % 100 WHEN 1 THEN 'RETRYING' WHEN 2 THEN 'WAITING' WHEN 3 THEN 'FAILED' ELSE 'DELIVERED' END AS status) s`, endpoint, company)
	d.Run(t, `INSERT INTO webhook_replays (id, endpoint_id, company_id, status, finished_at)
		SELECT gen_random_uuid(), $1, $2, CASE n WHEN 1 THEN 'RUNNING' ELSE 'COMPLETED' END, CASE WHEN n > 1 THEN now() END FROM generate_series(1, 1000) n`, endpoint, company)
	d.Run(t, `ANALYZE`)
	return company, endpoint
}

// Each statement goes by the index that its comment names, and reads a limited part of large tables.
func TestPlans(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	company, endpoint := grow(t, d, s)
	delivery := storetest.Ask[string](t, d, `SELECT id FROM webhook_deliveries WHERE status = 'FAILED' LIMIT 1`)
	lease := take(t, sender, endpoint)
	minute, emails := time.Minute.Milliseconds(), pq.Array([]string{uuid.NewString()})
	db := storetest.Connect(t, d, store.Options{})
	for name, tt := range map[string]struct {
		statement string
		args      []any
		indexes   []string
		buffers   int // at most
	}{
		"due endpoints":   {webhook.DueEndpointsSQL, []any{512, 10, minute}, []string{"webhook_endpoints_due"}, 100},
		"behind":          {webhook.BehindSQL, []any{1024, 10, minute, 1000}, []string{"event_feed_position"}, 12_000},
		"catch up":        {webhook.CatchUpSQL, []any{int64(1) << 62}, []string{"event_feed_position"}, 20_000},
		"lease":           {webhook.LeaseSQL, []any{endpoint, uuid.New(), minute}, []string{"webhook_endpoints_pkey"}, 50},
		"renew":           {webhook.RenewSQL, []any{endpoint, lease.Token, minute}, []string{"webhook_endpoints_pkey"}, 50},
		"due deliveries":  {webhook.DueDeliveriesSQL, []any{endpoint, webhook.RoundSize}, []string{"webhook_deliveries_retrying"}, 400},
		"probe":           {webhook.ProbeSQL, []any{endpoint, minute}, []string{"webhook_deliveries_retrying"}, 400},
		"new due":         {webhook.NewDueSQL, []any{endpoint, 0, minute}, []string{"webhook_endpoints_pkey", "webhook_deliveries_list"}, 50},
		"open emails":     {webhook.OpenEmailsSQL, []any{endpoint}, []string{"webhook_deliveries_(open|status)"}, 1200},
		"running replay":  {webhook.RunningReplaySQL, []any{endpoint}, []string{"webhook_replays_running"}, 20},
		"replay failed":   {webhook.ReplayFailedSQL, []any{endpoint, time.Now().Add(time.Hour), 100}, []string{"webhook_deliveries_failed"}, 30_000},
		"summary":         {webhook.DueSQL, []any{endpoint, company, 10, 1000}, []string{"webhook_deliveries_(open|status)", "webhook_deliveries_retrying", "webhook_replays_running"}, 1500},
		"advance":         {webhook.AdvanceSQL, []any{endpoint, emails, company}, []string{"webhook_deliveries_open"}, 50},
		"delivered":       {sql.MarkDelivered, []any{endpoint, company, pq.Array([]string{"e3", "e103"}), pq.Array([]int{200, 200}), pq.Array([]int{5, 5})}, []string{"webhook_deliveries_event"}, 150},
		"list":            {webhook.DeliveriesSQL, []any{endpoint, company, uuid.Max, 50}, []string{"webhook_deliveries_list"}, 200},
		"list, by status": {webhook.DeliveriesByStatusSQL, []any{endpoint, company, uuid.Max, 50, "FAILED"}, []string{"webhook_deliveries_status"}, 200},
		"retry":           {webhook.RetrySQL, []any{endpoint, company, delivery}, []string{"webhook_deliveries_pkey", "webhook_deliveries_(open|status)", "webhook_deliveries_retrying"}, 200},
		"clean":           {webhook.CleanDeliveriesSQL, []any{uuid.Max, minute, 100}, []string{"webhook_deliveries_pkey"}, 2000},
	} {
		plan, read := storetest.Buffers(t, db, tt.statement, tt.args...)
		for _, index := range tt.indexes {
			if !regexp.MustCompile(` (using|on) ` + index + `\b`).MatchString(plan) {
				t.Errorf("%s does not use %s:\n%s", name, index, plan)
			}
		}
		if regexp.MustCompile(`Seq Scan on (webhook_deliveries|event_feed|webhook_replays)`).MatchString(plan) {
			t.Errorf("%s reads a whole table:\n%s", name, plan)
		}
		if read > tt.buffers {
			t.Errorf("%s reads %d buffers, at most %d:\n%s", name, read, tt.buffers, plan)
		}
	}
}
