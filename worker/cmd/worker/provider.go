package main

import (
	"context"

	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/config"
	"email-gateway/worker/internal/pace"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/provider/ses"
)

// emailProvider has the methods of a provider that the worker calls. Only newProvider chooses the provider. Another provider
// needs a package beside ses with its test, an adapter like sesProvider, settings in package config, and a branch in
// newProvider.
type emailProvider interface {
	provider.Sender
	// Reach returns nil if the provider answers. It may use the rate-limited call of Limits.
	Reach(ctx context.Context) error
	// Limits returns the account's rate and quota, and whether the provider answers.
	Limits(ctx context.Context) (pace.Limits, error)
	// Access returns the settings that must be the same for all workers, and what restricts the account. gatewayctl doctor compares
	// and reports them.
	Access() map[string]any
	// BreakerCodes are the codes of failures that may open the circuit breaker.
	BreakerCodes() []string
}

func newProvider(ctx context.Context, c config.Worker, tracer telemetry.Tracer) (emailProvider, error) {
	sender, err := ses.New(ctx, ses.Config{
		Region: c.Region, Endpoint: c.Endpoint, ConfigurationSet: c.ConfigurationSet, Concurrency: c.MaxConcurrency(), Tracer: tracer,
	})
	if err != nil {
		return nil, err
	}
	return sesProvider{sender}, nil
}

// sesProvider adapts SES's account to package pace.
type sesProvider struct{ *ses.Sender }

func (sesProvider) BreakerCodes() []string { return ses.BreakerCodes() }

func (p sesProvider) Limits(ctx context.Context) (pace.Limits, error) {
	account, err := p.Account(ctx)
	limits := pace.Limits{
		PerSecond: account.MaxSendRate, PerDay: account.Max24HourSend, SentToday: account.SentLast24Hours, Refusal: account.Refusal(),
		Unreachable: p.Unreachable(account, err),
	}
	if err == nil {
		limits.Restriction, limits.UnderReview = account.Restriction(), account.Review != ""
	}
	return limits, err
}
