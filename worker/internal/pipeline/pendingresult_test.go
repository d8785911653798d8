package pipeline_test

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
	"email-gateway/shared/email/emailtest"
	"email-gateway/shared/steps"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/maintenance"
	"email-gateway/worker/internal/pendingresults"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/redistest"
)

// countedResults counts how often a result is stored.
type countedResults struct {
	pipeline.PendingResults
	stores atomic.Int64
}

func (c *countedResults) Store(ctx context.Context, t outbox.Transition) error {
	defer c.stores.Add(1)
	return c.PendingResults.Store(ctx, t)
}

// rescue runs the rescuer of a dispatcher with a Postgres that answers, and no feedback window.
func (b *bench) rescue(t *testing.T, client redis.UniversalClient) *prometheus.Registry {
	t.Helper()
	url, prefix := redistest.Shared(t)
	conn, err := asynqueue.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	publisher := asynqueue.NewPublisher(conn.WithPrefix(prefix))
	t.Cleanup(func() { _ = publisher.Close() })
	registry, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	rescuer := maintenance.NewRescuer(maintenance.RescuerParams{
		Log: log, Store: b.Store, Queue: publisher, Registry: registry, Actions: maintenance.NewActions(registry), After: time.Second,
		Outcomes: maintenance.Outcomes{
			Advancer: steps.New(registry).Watch(b.Store.NewAdvancer(), log), MaxAttempts: email.MaxAttempts, Backoff: emailtest.Backoff(),
			Processes: b.Store, PendingResults: pendingresults.New(client), Wake: b.Store.WakeNamed,
		},
	})
	if err := rescuer.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rescuer.Stop(context.Background()) })
	return registry
}

// One worker loses Postgres after it has claimed an email, for longer than the lease: a dispatcher records what the worker
// knows, which then agrees.
func TestHandle_DispatcherRecordsKeptResult(t *testing.T) {
	t.Parallel()
	unspent := &provider.Failure{Outcome: provider.Unspent, Code: "NETWORK_ERROR", Category: provider.TransientError, Reason: "no connection"}
	for name, tt := range map[string]struct {
		claim    bool // the fault begins with the claim's answer
		failure  *provider.Failure
		status   email.Status
		attempts int
		final    string // counted once by both
	}{
		"accepted":       {status: email.Sent, attempts: 1, final: "SENT"},
		"refused":        {failure: &provider.Failure{Outcome: provider.Failed, Code: "X", Category: provider.ValidationError}, status: email.Failed, attempts: 1, final: "FAILED"},
		"to be retried":  {failure: &provider.Failure{Outcome: provider.Retry, Code: "X", Category: provider.TransientError}, status: email.RetryScheduled, attempts: 1},
		"no call":        {failure: unspent, status: email.RetryScheduled},
		"claimed unseen": {claim: true, status: email.RetryScheduled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := redis.ParseURL(os.Getenv("REDIS_URL"))
			if err != nil {
				t.Fatal(err)
			}
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			var begun, cut atomic.Bool
			registry, results := prometheus.NewRegistry(), &countedResults{PendingResults: pendingresults.New(client)}
			b := newBench(t, func(p *pipeline.Params) {
				p.PendingResults, p.Metrics = results, pipeline.NewMetrics(registry)
				p.Advancer = &interrupted{p.Advancer, func(tr outbox.Transition) (before, after bool) {
					if tr.Guard == outbox.GuardClaim && !begun.Swap(true) {
						cut.Store(true)
						return false, tt.claim
					}
					return cut.Load(), false
				}}
			})
			if tt.failure != nil {
				b.sender.fail(1, *tt.failure)
			}
			id := b.Accept(t, b.company, func(e *outbox.NewEmail) { e.Delivery = email.AtMostOnce })
			ended := make(chan error, 1)
			task := b.task(t, id)
			go func() { ended <- b.pipeline.Handle(context.WithoutCancel(t.Context()), task) }()
			var token uuid.UUID
			waittest.Until(t, "claimed", func() bool {
				return b.SQL.QueryRowContext(t.Context(), `SELECT claim_token FROM email_outbox WHERE status = 'PROCESSING'`).Scan(&token) == nil
			})
			key := "email-gateway:result:" + token.String()
			t.Cleanup(func() { client.Del(context.Background(), key) })
			waittest.Until(t, "kept", func() bool { return client.Exists(t.Context(), key).Val() == 1 })
			if got := b.find(t, id).Status; got != email.Processing {
				t.Fatalf("status = %s before the end of the lease", got)
			}
			b.exec(t, `UPDATE email_outbox SET lease_until = now() - interval '6 s', next_at = now() + interval '1 h' WHERE id = $1`, id)
			dispatcher := b.rescue(t, client)
			waittest.Until(t, "recorded", func() bool { return b.find(t, id).Status == tt.status })
			b.expect(t, id, tt.status, tt.attempts, 0)
			b.exec(t, `UPDATE email_outbox SET next_at = now() + interval '1 h' WHERE id = $1`, id)
			again := results.stores.Load() + 1
			waittest.Until(t, "stored once more", func() bool { return results.stores.Load() > again })
			cut.Store(false)
			if err := <-ended; err != nil {
				t.Errorf("the task ends with %v", err)
			}
			b.expect(t, id, tt.status, tt.attempts, 0)
			if e := b.find(t, id); e.OutcomeUnknown || e.PossibleDuplicate {
				t.Error("the email is flagged")
			}
			if tt.final != "" {
				n := 0.0
				for _, r := range []*prometheus.Registry{registry, dispatcher} {
					n += counted(t, r, "pipeline_final_state_total", tt.final)
				}
				if n != 1 {
					t.Errorf("counted %v times", n)
				}
			}
			if !tt.claim && client.Exists(t.Context(), key).Val() != 0 {
				t.Error("the result is still in Redis")
			}
		})
	}
}

// counted is the value of a counter with one label.
func counted(t *testing.T, registry *prometheus.Registry, name, value string) (n float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == value {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
