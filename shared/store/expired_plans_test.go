package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/storetest"
)

// Any number of emails of one company that are past their deadline do not delay the emails of others: no statement about several
// lanes reads them all, and the rows of the other lanes are taken.
func TestPlans_ExpiredBacklog(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	first := d.Accept(t, d.Company(t), nil)
	run(t, d, `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at, next_at)
		SELECT overlay(id::text placing lpad(to_hex(n), 12, '0') from 25)::uuid, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version,
		       now() - interval '1 minute', now() - interval '1 day' + n * interval '1 ms'
		FROM email_outbox, generate_series(1, 20000) n WHERE id = $1`, first)
	other := d.Accept(t, d.Company(t), nil)
	laneOf := func(id uuid.UUID) int64 {
		return ask[int64](t, d, `SELECT lane_id FROM email_outbox WHERE id = $1`, id)
	}
	lanes := pq.Array([]int64{laneOf(first), laneOf(other)})
	since, ids := pq.Array([]string{"-infinity", "-infinity"}), pq.Array([]uuid.UUID{{}, {}})
	db := storetest.Connect(t, d, store.Options{})
	openBreaker(t, d, "SES_TIMEOUT")
	later(t, d)
	for _, full := range []string{"", `ANALYZE email_outbox`} {
		if full != "" {
			run(t, d, full)
		}
		for name, parameters := range map[string][]any{
			"sql.NamedLanes":            {2, lanes, since, ids},
			"dispatch.waitingLanesSQL":  nil,
			"sql.TakeDue":               {2, uuid.New(), time.Now(), lanes, since, ids, pq.Array([]int64{10, 10})},
			"dispatch.oldestDueSQL":     nil,
			"dispatch.pickProbeSQL":     {pq.Array(email.Queues()), 5000},
			"dispatch.pickSafeProbeSQL": {pq.Array(email.Queues()), 5000},
		} {
			if plan, read := storetest.Buffers(t, db, written(t, name), parameters...); read > 1500 {
				t.Errorf("%q: %s reads %d buffers:\n%s", full, name, read, plan)
			}
		}
	}
	probe, found, err := d.Store.PickProbe(t.Context(), email.Queues(), 0, false)
	if err != nil || !found || probe.ID != other {
		t.Errorf("the probe is %v, %v, %v, want %v", probe, found, err, other)
	}
	batch, err := d.Store.TakeDue(t.Context(), dispatch.Slot{ID: uuid.New()}, storetest.EvenTakes([]int64{laneOf(first), laneOf(other)}, 10))
	if err != nil || len(batch.Rows) != 11 || batch.Rows[10].ID != other {
		t.Errorf("%d rows taken, %v", len(batch.Rows), err)
	}
}
