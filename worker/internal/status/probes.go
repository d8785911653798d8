package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
)

// probeTimeout bounds one probe, so that all of them fit into the interval.
const probeTimeout = 2 * time.Second

// Probe checks one dependency; nil means that it responds.
type Probe func(ctx context.Context) error

// prober runs probes, each of them once at a time: a probe of a network disk that hangs ignores its context, and one more
// of them every few seconds would use up the threads of the process.
type prober struct {
	probes  map[string]Probe
	running singleflight.Group
}

func newProber(probes map[string]Probe) *prober { return &prober{probes: probes} }

// all runs all probes concurrently: a hanging one delays no other. One that still runs from an earlier call is waited for.
func (p *prober) all(ctx context.Context) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	results := make(map[string]<-chan singleflight.Result, len(p.probes))
	for name, probe := range p.probes {
		results[name] = p.running.DoChan(name, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout) // other callers may wait for it too
			defer cancel()
			return nil, probe(ctx)
		})
	}
	found := make(map[string]error, len(results))
	for name, result := range results {
		select {
		case r := <-result:
			found[name] = timedOut(r.Err)
			continue
		case <-ctx.Done():
		}
		select { // while another one was waited for, this one may have ended
		case r := <-result:
			found[name] = timedOut(r.Err)
		default:
			found[name] = timedOut(ctx.Err())
		}
	}
	return found
}

// timedOut names the limit in the error of a timeout.
func timedOut(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no response within %s: %w", probeTimeout, err)
	}
	return err
}
