package main

import (
	"context"

	"email-gateway/shared/store/file"
	"email-gateway/worker/internal/attachment"
	"email-gateway/worker/internal/breaker"
	"email-gateway/worker/internal/config"
	"email-gateway/worker/internal/dbcheck"
	"email-gateway/worker/internal/inflight"
	"email-gateway/worker/internal/pace"
	"email-gateway/worker/internal/pendingresults"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/status"
)

// sending is the pipeline of emails with what limits it.
type sending struct {
	emails   *pipeline.Pipeline
	metrics  *pipeline.Metrics
	pacer    *pace.Pacer
	quota    *pace.Quota
	breaker  *breaker.Breaker
	database *dbcheck.Check
	limit    *inflight.Limiter
}

func (p program) newSending() sending {
	c := p.config
	s := sending{
		metrics: pipeline.NewMetrics(p.registry), pacer: pace.New(p.redis, c.SendRate), database: dbcheck.New(p.log, p.db.Confirm),
		breaker: breaker.New(breaker.Params{
			Log: p.log, Store: p.db, Instance: status.Instance(), Registry: p.registry, Codes: p.sender.BreakerCodes(), Reach: p.sender.Reach,
		}),
	}
	s.quota = pace.NewQuota(pace.QuotaParams{
		Log: p.log, Pacer: s.pacer, Account: p.sender, Breaker: s.breaker, Peers: peers(p.db), Registry: p.registry, Fallback: c.SendRate,
	})
	loader, advancer := p.db.NewLoader(), p.db.NewAdvancer()
	s.limit = inflight.New(inflight.Params{
		Log: p.log, Pacer: s.pacer, Suspension: s.breaker.Suspension(), Database: s.database,
		Fixed: c.Concurrency, Min: config.MinConcurrency, Max: config.MaxConcurrency, Registry: p.registry,
		InFlight: func(emails int) {
			loader.For(emails)
			advancer.For(emails)
		},
	})
	s.emails = pipeline.New(pipeline.Params{
		Log: p.log, Loader: loader, Advancer: advancer, Outbox: p.db, Pacer: s.pacer, Sender: p.sender, Breaker: s.breaker,
		RetryRoom: asynqueue.NewRetryRoom(p.conn, p.redis),
		Templates: p.db, Attachments: attachment.New(attachment.Params{
			Store: file.New(p.db.DB()), Bucket: p.storage, Ring: c.CPFCNPJKeys, Concurrency: s.limit.Limit,
		}),
		Links:   pipeline.Links{Keys: c.UnsubscribeKeys, PublicURL: c.PublicURL},
		Metrics: s.metrics, MaxAttempts: c.MaxAttempts, Backoff: c.Backoff, TTL: c.TTL, FeedbackWindow: c.Window(),
		Sent: s.limit.Sent, PendingResults: pendingresults.New(p.redis), Database: s.database, Tracer: p.traces.Tracer(),
	})
	return s
}

// notSuspended returns an error while the circuit breaker suspends sending.
func (s sending) notSuspended(context.Context) error { return s.breaker.Suspension().Suspended() }
