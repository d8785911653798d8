package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

func liveLanes(t *testing.T, d storetest.Database) []int64 {
	t.Helper()
	found, err := d.Store.WaitingLanes(t.Context())
	lanes := found.Due()
	if err != nil {
		t.Fatal(err)
	}
	return lanes[email.QueueNormal]
}

// slot makes a dispatcher's slot that has taken nothing yet.
func slot() dispatch.Slot { return dispatch.Slot{ID: uuid.New()} }

// take takes what is due in all live lanes.
func take(t *testing.T, d storetest.Database, perLane int) []dispatch.DueRow {
	t.Helper()
	taken, err := d.Store.TakeDue(t.Context(), slot(), storetest.EvenTakes(liveLanes(t, d), perLane))
	if err != nil {
		t.Fatal(err)
	}
	return taken.Rows
}

func idsOf(due []dispatch.DueRow) []uuid.UUID {
	ids := make([]uuid.UUID, len(due))
	for i, e := range due {
		ids[i] = e.ID
	}
	return ids
}

func TestLiveLanes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change string // of the one email that waits
		want   bool
	}{
		"due":                  {`SELECT 1`, true},
		"due later":            {`UPDATE email_outbox SET next_at = now() + interval '1 h'`, false},
		"expired":              {`UPDATE email_outbox SET expires_at = now()`, true},
		"on the queue":         {`UPDATE email_outbox SET status = 'ENQUEUED'`, false},
		"sent":                 {`UPDATE email_outbox SET status = 'SENT', processed_at = now()`, false},
		"its retry is due":     {`UPDATE email_outbox SET status = 'RETRY_SCHEDULED', next_at = now() - interval '1 s'`, true},
		"its retry waits":      {`UPDATE email_outbox SET status = 'RETRY_SCHEDULED', next_at = now() + interval '1 s'`, false},
		"its task is due":      {`UPDATE email_outbox SET status = 'RETRY_SCHEDULED', enqueued_at = now(), next_at = now() - interval '1 s'`, false},
		"its task is late":     {`UPDATE email_outbox SET status = 'RETRY_SCHEDULED', enqueued_at = now(), next_at = now() - interval '6 s'`, true},
		"lane paused":          {`UPDATE dispatch_lanes SET paused_at = now()`, false},
		"lane parked":          {`UPDATE dispatch_lanes SET parked_until = now() + interval '1 s'`, false},
		"lane was parked":      {`UPDATE dispatch_lanes SET parked_until = now()`, true},
		"company suspended":    {`UPDATE companies SET suspended_at = now()`, false},
		"in a lane of its own": {`UPDATE dispatch_lanes SET mailing_id = gen_random_uuid()`, true},
		"on another queue":     {`UPDATE email_outbox SET lane_id = (SELECT id FROM dispatch_lanes WHERE queue = 'email:send:low' ORDER BY id LIMIT 1)`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			id := d.Accept(t, d.Company(t), nil)
			d.Company(t) // whose lanes are empty
			run(t, d, tt.change)
			if got := len(liveLanes(t, d)) == 1; got != tt.want {
				t.Errorf("live: %v", liveLanes(t, d))
			}
			// A lane is live exactly when there is something in it to take.
			lanes := []int64{ask[int64](t, d, `SELECT lane_id FROM email_outbox`)}
			open := ask[bool](t, d, `SELECT NOT EXISTS (SELECT FROM dispatch_lanes l JOIN companies c ON c.id = l.company_id
				WHERE l.paused_at IS NOT NULL OR l.parked_until > now() OR c.suspended_at IS NOT NULL OR l.id = $1 AND l.queue <> 'email:send')`, lanes[0])
			taken, err := d.Store.TakeDue(t.Context(), slot(), storetest.EvenTakes(lanes, 10))
			if err != nil || open && (len(taken.Rows) == 1 && taken.Rows[0].ID == id) != tt.want {
				t.Errorf("took %v, %v", taken, err)
			}
		})
	}
}

func TestLiveLanes_OfManyCompanies(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	for range 5 {
		company := d.Company(t)
		for range 3 {
			d.Accept(t, company, nil)
		}
		d.Accept(t, company, func(e *outbox.NewEmail) { e.Priority = 1 })
	}
	found, err := d.Store.WaitingLanes(t.Context())
	live := found.Due()
	if err != nil {
		t.Fatal(err)
	}
	for _, queue := range email.Queues() {
		want := 5
		if queue == email.QueueLow {
			want = 0
		}
		if lanes := live[queue]; len(lanes) != want || !slices.IsSorted(lanes) {
			t.Errorf("%s: %v", queue, lanes)
		}
	}
}

func TestOverdue(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	overdue := map[uuid.UUID]bool{}
	for _, status := range email.Statuses() {
		id, _ := inStatus(t, d, company, status)
		run(t, d, `UPDATE email_outbox SET expires_at = now() - interval '1 s' WHERE id = $1`, id)
		if status.Claimable() {
			overdue[id] = true
		}
	}
	d.Accept(t, company, nil)
	listed, err := d.Store.Overdue(t.Context(), 100)
	if err != nil || len(listed) != len(overdue) {
		t.Errorf("%d overdue, want %d: %v", len(listed), len(overdue), err)
	}
	for _, e := range listed {
		if ago := time.Since(e.ExpiresAt); !overdue[e.ID] || ago < 0 || ago > 3*time.Minute {
			t.Errorf("%v is %s", e, readOutbox(t, d, e.ID).Status)
		}
		if e.Cause != "none" {
			t.Errorf("%v waited because %s", e.ID, e.Cause)
		}
		storetest.Apply(t, d, expireOf(e.ID))
	}
	if left, err := d.Store.Overdue(t.Context(), 100); len(left) != 0 || err != nil {
		t.Errorf("%v, %v", left, err)
	}
}

// An email of a suspended company, of a paused mailing or of a lane that an operator paused is listed with this cause.
func TestOverdue_Cause(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	want := map[uuid.UUID]string{}
	for _, closed := range []struct{ cause, how string }{
		{"suspended", `UPDATE companies SET suspended_at = now(), suspended_reason = 'a test' WHERE id = $1`},
		{"paused", `UPDATE dispatch_lanes SET mailing_id = gen_random_uuid(), paused_at = now() WHERE company_id = $1 AND queue = 'email:send'`},
		{"held", `UPDATE dispatch_lanes SET held_at = now(), held_reason = 'a test' WHERE company_id = $1`},
		{"none", `UPDATE dispatch_lanes SET paused_at = now() WHERE company_id = $1 AND queue <> 'email:send'`},
	} {
		company := d.Company(t)
		id := d.Accept(t, company, nil)
		run(t, d, `UPDATE email_outbox SET expires_at = now() - interval '1 s' WHERE id = $1`, id)
		run(t, d, closed.how, company)
		want[id] = closed.cause
	}
	listed, err := d.Store.Overdue(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	got := map[uuid.UUID]string{}
	for _, e := range listed {
		got[e.ID] = e.Cause
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
