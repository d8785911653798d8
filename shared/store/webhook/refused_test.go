package webhook_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/webhook"
)

// A refusal shows that an endpoint is up: earlier failures do not count, and open deliveries are due after a long outage.
// Only a success ends the time since which the endpoint has been failing, so one that refuses everything is disabled.
func TestRecord_Refused(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	id := newEndpoint(t, s, d.Company(t))
	l := take(t, sender, id)
	record := func(r webhook.Result) webhook.Recorded {
		t.Helper()
		after, err := sender.Record(t.Context(), l, r, disableAfter)
		if err != nil {
			t.Fatal(err)
		}
		return after
	}
	record(webhook.Result{New: []webhook.Attempted{failed(uuid.New(), 1)}, Failures: webhook.DownFailures, Error: "HTTP_500"})
	record(webhook.Result{Succeeded: true, ProbeAfter: time.Minute})
	if round, err := sender.Load(t.Context(), l, time.Hour); err != nil || len(round.Due) != 0 {
		t.Errorf("due after less than a minute: %+v, %v", round, err)
	}
	record(webhook.Result{Failures: webhook.DownFailures, Error: "HTTP_500"})
	since := storetest.Ask[time.Time](t, d, `UPDATE webhook_endpoints SET failing_since = now() - interval '119 h' RETURNING failing_since`)
	after := record(webhook.Result{Refused: true, Failures: 1, Error: "HTTP_422", ProbeAfter: time.Minute})
	if after.Failures != 1 || after.FailingSince == nil || !after.FailingSince.Equal(since) || after.Status != webhook.Enabled || after.Health() != "failing" {
		t.Errorf("%+v", after)
	}
	if round, err := sender.Load(t.Context(), l, time.Hour); err != nil || len(round.Due) != 1 || !round.NewDue {
		t.Errorf("%+v, %v", round, err)
	}
	d.Run(t, `UPDATE webhook_endpoints SET failing_since = now() - interval '121 h'`)
	if after := record(webhook.Result{Refused: true, Failures: 1, Error: "HTTP_422"}); !after.DisabledNow || *after.DisabledReason != webhook.Failing {
		t.Errorf("refuses everything for five days: %+v", after)
	}
}

// New events of an endpoint that is down are attempted again when the last failed attempt of a new event is old enough.
// Retries of open deliveries, and events that wait, do not postpone that.
func TestLoad_NewDue(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	company := d.Company(t)
	id := newEndpoint(t, s, company)
	l := take(t, sender, id)
	waiting := failed(uuid.New(), 2)
	waiting.Status, waiting.Attempts = webhook.Waiting, 0
	if _, err := sender.Record(t.Context(), l, webhook.Result{New: []webhook.Attempted{failed(uuid.New(), 1), waiting}, Failures: webhook.DownFailures, Error: "HTTP_500"}, disableAfter); err != nil {
		t.Fatal(err)
	}
	d.Run(t, `INSERT INTO event_feed (company_id, position, email_ids, first_seqs, last_seqs) VALUES ($1, 40000, ARRAY[gen_random_uuid()], '{1}', '{1}')`, company)
	for _, tt := range []struct {
		age  string
		want bool
	}{{"59 min", false}, {"61 min", true}, {"-61 min", true}} {
		d.Run(t, `UPDATE webhook_deliveries SET created_at = now() - $1::interval WHERE position = 1`, tt.age)
		round, err := sender.Load(t.Context(), l, time.Hour)
		if err != nil || round.NewDue != tt.want {
			t.Errorf("%s: %v, %v", tt.age, round.NewDue, err)
		}
		d.Run(t, `UPDATE webhook_endpoints SET lease_token = NULL, lease_until = NULL`)
		work, err := sender.Behind(t.Context(), time.Hour, 10)
		if err != nil || len(work) == 1 != tt.want {
			t.Errorf("%s: listed %v, %v", tt.age, work, err)
		}
		l = take(t, sender, id)
	}
}
