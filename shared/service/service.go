// Package service is how every long-running part of the gateway's programs lives
// and dies: started in order, stopped in reverse, each stop waited for. The api,
// the dispatcher and the worker are each a list of services given to Run.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Service is one part of a program.
type Service interface {
	// Start returns when the part works, or says why it cannot. What goes wrong
	// later and cannot be mended is sent to failed, which never blocks.
	Start(ctx context.Context, failed func(error)) error
	// Stop ends the part and waits until it has ended or ctx has. It is called once,
	// and only after a successful Start.
	Stop(ctx context.Context) error
}

// Named gives a service the name that its errors and logs carry.
type Named struct {
	Name string
	Service
}

// Run tells the log which version this is, starts the services in order, waits until ctx
// ends or one of them fails, and stops those that were started in reverse order within
// grace. List first what others rely on: a consumer stops before the sender it feeds.
func Run(ctx context.Context, log *slog.Logger, grace time.Duration, services ...Named) (err error) {
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	log.Info("starting", "version", Version())
	started := services[:0:0]
	defer func() {
		err = errors.Join(err, stopAll(log, grace, started))
	}()
	for _, s := range services {
		failed := func(err error) { fail(fmt.Errorf("%s: %w", s.Name, err)) }
		err := s.Start(running, failed)
		if err == nil {
			started = append(started, s)
		}
		if running.Err() != nil {
			break // asked to stop, or an earlier part failed: err is at most an echo of that
		}
		if err != nil {
			return fmt.Errorf("start %s: %w", s.Name, err)
		}
	}
	<-running.Done()
	if ctx.Err() != nil {
		return nil // asked to stop
	}
	return context.Cause(running)
}

func stopAll(log *slog.Logger, grace time.Duration, started []Named) error {
	// The context that ended the program must not end its clean-up.
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var errs []error
	for i := len(started) - 1; i >= 0; i-- {
		s := started[i]
		log.Debug("stopping", "part", s.Name)
		if err := s.Stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}
