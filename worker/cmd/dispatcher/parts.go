package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/blob"
	"email-gateway/shared/service"
	"email-gateway/shared/steps"
	"email-gateway/shared/store"
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/lane"
	reputationstore "email-gateway/shared/store/reputation"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/usage"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/config"
	"email-gateway/worker/internal/dispatcher"
	"email-gateway/worker/internal/eventfeed"
	"email-gateway/worker/internal/maintenance"
	"email-gateway/worker/internal/pendingresults"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/reputation"
	"email-gateway/worker/internal/status"
)

// program has the resources of the parts.
type program struct {
	config    config.Dispatcher
	log       *slog.Logger
	registry  *prometheus.Registry
	traces    *telemetry.Tracing
	db        *store.Store
	feed      *event.Store
	publisher *asynqueue.Publisher
	redis     redis.UniversalClient // for results that workers could not record
	listener  *lane.Listener
	storage   *blob.Bucket
	bulk      *bulk // nil without RabbitMQ
}

// parts lists the program's parts in their start order; they stop in reverse order.
func (p program) parts() []service.Named {
	c, advancer := p.config, steps.New(p.registry, provider.RetriedCategories()...).Watch(p.db.NewAdvancer(), p.log)
	outcomes := maintenance.Outcomes{
		Advancer: advancer, MaxAttempts: c.MaxAttempts, Backoff: c.Backoff, Window: c.Window(), Processes: p.db, Breaker: p.db,
		PendingResults: pendingresults.New(p.redis), Wake: p.db.WakeNamed,
	}
	actions := maintenance.NewActions(p.registry, asynqueue.TaskEvicted, asynqueue.TaskReplaced, asynqueue.StrayRemoved, asynqueue.QueueRestored)
	probes := map[string]status.Probe{"redis": p.publisher.Ping, "storage": p.storage.Ping}
	d := dispatcher.Params{
		Log: p.log, Store: p.db, Queue: p.publisher, Ages: p.publisher, Registry: p.registry, Wakes: p.listener, PollInterval: c.PollInterval,
		SendRate: c.SendRate, MaxAttempts: c.MaxAttempts, Tracer: p.traces.Tracer(),
	}
	if p.bulk != nil {
		probes["rabbitmq"] = p.bulk.publisher.Ping
		d.Bulk = p.bulk.publisher
	}
	p.registry.MustRegister(newClockGauge())
	drain := service.NewDrain(c.DrainDelay)
	ready := map[string]status.Probe{"database": p.db.Confirm, "redis": p.publisher.Ping}
	parts := []service.Named{
		{Name: "traces", Service: p.traces},
		{Name: "clock", Service: p.db.NewClock(p.log)},
		{Name: "http", Service: service.NewHTTP(p.log, c.Addr, drain.Handler(status.Handler(p.registry, ready)))},
		{Name: "status", Service: status.NewReporter(status.Params{
			Log: p.log, Store: p.db, Service: "dispatcher", Instance: status.Instance(), Probes: probes, Registry: p.registry, Facts: p.facts,
		})},
		{Name: "listener", Service: p.listener},
		{Name: "dispatcher", Service: dispatcher.New(d)},
		{Name: "expiry sweeper", Service: maintenance.NewExpirySweeper(maintenance.SweeperParams{
			Log: p.log, Store: p.db, Advancer: advancer, Registry: p.registry,
		})},
		{Name: "rescuer", Service: maintenance.NewRescuer(maintenance.RescuerParams{
			Log: p.log, Store: p.db, Outcomes: outcomes, Queue: p.publisher, Registry: p.registry, Actions: actions, After: c.RescueAfter,
		})},
		{Name: "outcome resolver", Service: maintenance.NewOutcomeResolver(maintenance.ResolverParams{
			Log: p.log, Store: p.db, Outcomes: outcomes, Registry: p.registry,
		})},
		{Name: "replayer", Service: maintenance.NewReplayer(maintenance.ReplayerParams{
			Log: p.log, Store: p.db, Advancer: advancer, Registry: p.registry, TTL: c.TTL,
		})},
		{Name: "task remover", Service: maintenance.NewTaskRemover(maintenance.TaskRemoverParams{Log: p.log, Store: p.db, Queue: p.publisher})},
		{Name: "event sequencer", Service: eventfeed.NewSequencer(eventfeed.Params{Log: p.log, Store: p.feed, Registry: p.registry})},
		{Name: "reputation guard", Service: reputation.NewGuard(reputation.Params{
			Log: p.log, Store: p.reputation(), Registry: p.registry, Enabled: c.ReputationGuard, Rules: c.Rules(),
		})},
		{Name: "quota folder", Service: maintenance.NewQuotaFolder(maintenance.QuotaFolderParams{Log: p.log, Store: p.db})},
		{Name: "scheduled counter", Service: maintenance.NewScheduledCounter(maintenance.ScheduledCounterParams{Log: p.log, Store: p.db})},
		{Name: "usage folder", Service: maintenance.NewUsageFolder(maintenance.UsageFolderParams{Log: p.log, Store: usage.New(p.db.DB())})},
		{Name: "partitioner", Service: maintenance.NewPartitioner(maintenance.PartitionerParams{
			Log: p.log, Store: retention.New(p.db.DB()), Actions: actions, Registry: p.registry, Logs: time.Duration(c.Logs), Events: time.Duration(c.KeepEvents()),
		})},
	}
	if p.bulk != nil {
		parts = append(parts, service.Named{Name: "recipient rescuer", Service: maintenance.NewRecipientRescuer(maintenance.RecipientRescuerParams{
			Log: p.log, Store: p.db, Actions: actions, Retries: c.RetryTTL() * time.Duration(c.MaxRetries+1),
		})})
	}
	parts = append(parts, p.mailingParts(advancer)...)
	parts = append(parts, service.Named{Name: "orphan sweeper", Service: maintenance.NewOrphanSweeper(maintenance.OrphanSweeperParams{
		Log: p.log, Blobs: p.storage, Mailings: p.db, Files: file.New(p.db.DB()), Registry: p.registry,
	})})
	parts = append(parts, maintenance.NewCleaners(p.cleaners(actions))...)
	return append(parts, service.Named{Name: "drain", Service: drain})
}

// reputation returns the store of the reputation guard.
func (p program) reputation() *reputationstore.Store {
	return reputationstore.New(p.db.DB(), func(ctx context.Context, company uuid.UUID) error {
		return p.db.WakeLanes(ctx, []lane.Lanes{{Company: company}})
	})
}

// facts returns Redis's settings for gatewayctl doctor, which does not connect to Redis.
func (p program) facts(ctx context.Context) map[string]any {
	const listening = 1
	found := map[string]any{"connections": p.db.DB().MaxConns() + listening, "leastConnections": store.MinConns + listening}
	if keeps, err := p.publisher.Persistence(ctx); err == nil { // the probe reports an outage
		found["redisKeeps"] = keeps
	}
	return found
}
