package maintenance_test

import (
	"bytes"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
	"email-gateway/worker/internal/maintenance"
)

func TestRescuer_WaitsForFeedback(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	again := claim(t, d, company, "- interval '6 s'", nil)
	never := claim(t, d, company, "- interval '6 s'", func(e *store.NewEmail) { e.Delivery = email.AtMostOnce })
	rescue(t, d, newQueue(t), time.Hour)
	for _, id := range []uuid.UUID{again, never} {
		eventually(t, "it waits", func() bool { return status(t, d, id) == email.OutcomeUnknown })
		set(t, d, id, `next_at = now()`)
	}
	eventually(t, "sent again", func() bool { return status(t, d, again) == email.RetryScheduled })
	eventually(t, "given up", func() bool { return status(t, d, never) == email.Failed })
	timeline, err := d.Store.Timeline(t.Context(), again)
	if err != nil || len(timeline) != 5 || timeline[3].Type != email.EventOutcomeUnknown || timeline[4].Type != email.EventRetryScheduled {
		t.Errorf("%+v, %v", timeline, err)
	}
}

func TestRescuer_WaitsAsLongAsTheWorkersWould(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		own  time.Duration
		told map[string]any
		want email.Status
	}{
		"the dispatcher knows of none": {0, map[string]any{maintenance.WindowFact: 900_000}, email.OutcomeUnknown},
		"the workers have none":        {time.Hour, map[string]any{maintenance.WindowFact: 0}, email.RetryScheduled},
		"the workers do not tell":      {time.Hour, map[string]any{"concurrency": 10}, email.OutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			for instance, facts := range map[string]map[string]any{"a": tt.told, "b": {maintenance.WindowFact: "odd"}} {
				if err := d.Store.ReportStatus(t.Context(), "worker", instance, time.Now(), facts); err != nil {
					t.Fatal(err)
				}
			}
			id := claim(t, d, d.Company(t), "- interval '6 s'", nil)
			rescue(t, d, newQueue(t), tt.own)
			eventually(t, string(tt.want), func() bool { return status(t, d, id) == tt.want })
		})
	}
}

func TestOutcomeResolver_PageByPage(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	var ids []uuid.UUID
	for range 5 {
		id := claim(t, d, company, "+ interval '1 min'", nil)
		set(t, d, id, `status = 'OUTCOME_UNKNOWN', lease_until = NULL, next_at = now() + interval '1 h', expires_at = date_trunc('day', now()) + interval '2 days'`)
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	set(t, d, ids[1], `next_at = now()`)
	set(t, d, ids[4], `next_at = now()`)
	run(t, maintenance.NewOutcomeResolver(maintenance.ResolverParams{
		Log: slog.New(slog.DiscardHandler), Store: d.Store, Registry: prometheus.NewRegistry(), Page: 2,
		Outcomes: maintenance.Outcomes{Advancer: d.Store.NewAdvancer(), MaxAttempts: email.MaxAttempts, Backoff: email.DefaultBackoff()},
	}))
	for _, due := range []uuid.UUID{ids[1], ids[4]} {
		eventually(t, "sent again", func() bool { return status(t, d, due) == email.RetryScheduled })
	}
	for _, waits := range []uuid.UUID{ids[0], ids[2], ids[3]} {
		if got := status(t, d, waits); got != email.OutcomeUnknown {
			t.Errorf("one that waits: %s", got)
		}
	}
}
