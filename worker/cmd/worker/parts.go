package main

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/blob"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/store/installation"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/config"
	"email-gateway/worker/internal/maintenance"
	"email-gateway/worker/internal/pace"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/status"
)

// program has the resources of the parts.
type program struct {
	config    config.Worker
	log       *slog.Logger
	registry  *prometheus.Registry
	traces    *telemetry.Tracing
	db        *store.Store
	webhookDB *store.Store
	owner     *installation.Store
	conn      asynqueue.Conn
	redis     redis.UniversalClient // for send tokens and pending results
	sender    emailProvider
	storage   *blob.Bucket // of attachments
	monitor   *asynqueue.Monitor
}

// parts lists the program's parts in their start order. They stop in reverse order: first the drain; then all consumers, which
// concurrently stop taking work and finish the work that they have begun; last the HTTP listener and the trace exporter.
func (p program) parts() ([]service.Named, error) {
	c := p.config
	s := p.newSending()
	consumers, err := p.newConsumers(s)
	if err != nil {
		return nil, err
	}
	drain := service.NewDrain(c.DrainDelay)
	ready := map[string]status.Probe{"database": p.db.Confirm, "redis": consumers.emails.Ping, "ses": s.notSuspended}
	mux := status.Handler(p.registry, ready)
	mux.Handle(asynqueue.MonitorPath+"/", p.monitor)
	return []service.Named{
		{Name: "traces", Service: p.traces},
		{Name: "clock", Service: p.db.NewClock(p.log)},
		{Name: "http", Service: service.NewHTTP(p.log, c.Addr, drain.Handler(mux))},
		{Name: "status", Service: p.reporter(s, consumers)},
		{Name: "quota", Service: s.quota},
		{Name: "circuit breaker", Service: s.breaker.Watch()},
		{Name: "results", Service: s.emails},
		{Name: "concurrency", Service: s.limit},
		{Name: "consumers", Service: service.Group(consumers.all...)},
		{Name: "drain", Service: drain},
	}, nil
}

// reporter returns the part that stores the state of this worker for the other programs.
func (p program) reporter(s sending, consumers *consumers) *status.Reporter {
	return status.NewReporter(status.Params{
		Log: p.log, Store: p.db, Service: "worker", Instance: status.Instance(), Probes: consumers.probes, Registry: p.registry, Wake: s.pacer.Changed(),
		Facts: func(context.Context) map[string]any {
			needed := s.limit.Needed()
			facts := map[string]any{
				// Dispatchers of the previous release read concurrency, a number of emails, instead of neededMs.
				"neededMs": needed.Milliseconds(), "concurrency": int(math.Ceil(needed.Seconds() * s.pacer.OwnRate())), "sendRate": s.pacer.Rate(), "consumers": consumers.bulk.working(),
				maintenance.WindowFact: p.config.Window().Milliseconds(), "connections": p.db.DB().MaxConns() + p.webhookDB.DB().MaxConns(), "leastConnections": 2 * store.MinConns,
				"sesAccess": p.sender.Access(), "keyIds": p.config.CPFCNPJKeys.IDs(), "unsubscribeLinks": p.links(),
			}
			if consumers.events != nil {
				facts[maintenance.DrainedFact] = time.Since(consumers.events.Drained()).Milliseconds()
			}
			return facts
		},
	})
}

// links are the settings of unsubscribe links, which the api's have to be equal to.
func (p program) links() map[string]string {
	links := map[string]string{"publicUrl": p.config.PublicURL}
	if keys := p.config.UnsubscribeKeys.Fingerprints(); len(keys) > 0 {
		links["key"] = keys[0] // the one that encrypts
	}
	return links
}

// peers counts the live workers.
func peers(db *store.Store) pace.Peers {
	return func(ctx context.Context) (int, error) { return db.LiveProcesses(ctx, "worker") }
}
