package bench

import (
	"context"
	"errors"
	"time"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/load"
	"email-gateway/scripts/bench/results"
)

// latencyRate is the number of emails submitted per second: a busy hour of a small company.
const latencyRate = 50

func latency() Section {
	return Section{Name: "latency", What: "POST to SES at 50/s, with default settings", Run: runLatency}
}

// runLatency measures the time from writing an email's POST until SES receives the email, with
// default settings and without a backlog.
func runLatency(ctx context.Context, r *environment.Environment, t *results.Table) (err error) {
	timer := load.NewStopwatch()
	g, err := openGateway(ctx, r, gatewayOptions{onSend: timer.Arrive})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close(context.WithoutCancel(ctx))) }()
	if err := g.start(ctx); err != nil {
		return err
	}
	p := load.Pace{N: environment.Scale(r, 500, 100), Every: time.Second / latencyRate}
	if err := g.warmUp(ctx); err != nil {
		return err
	}
	for range t.Rounds() {
		times, err := g.measureTimes(ctx, timer, p)
		if err != nil {
			return err
		}
		p50, p99 := load.Percentile(times, 50), load.Percentile(times, 99)
		t.Say("%d emails at %d/s: p50 %s ms, p99 %s ms, longest %s ms", len(times), latencyRate, results.Figure(p50), results.Figure(p99), results.Figure(load.Percentile(times, 100)))
		t.Record(results.Quantity{Name: "POST to SES at 50/s, p50", Unit: "ms", Budget: 9, Moonshot: 5}, p50)
		t.Record(results.Quantity{Name: "POST to SES at 50/s, p99", Unit: "ms", Budget: 60}, p99)
	}
	return nil
}

// measureTimes submits emails of the first tenant at the pace and returns their times to SES in
// ascending order.
func (g *gateway) measureTimes(ctx context.Context, timer *load.Stopwatch, p load.Pace) ([]time.Duration, error) {
	err := p.Run(ctx, func(int) error {
		serial := g.serial.Add(1)
		timer.Leave(environment.Address(string(environment.AppendSerial(nil, serial))))
		_, err := g.tenant.post(ctx, serial)
		return err
	})
	if err != nil {
		return nil, err
	}
	return timer.All(ctx)
}
