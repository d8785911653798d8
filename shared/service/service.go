// Package service runs the parts of a long-running program: it starts them in order and stops them
// in reverse order, waiting for each. The api, the dispatcher and the worker are each a list of
// services passed to Run.
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
	// Start returns when the part works, or with the error that prevents it. A later fatal error is
	// passed to failed, which never blocks.
	Start(ctx context.Context, failed func(error)) error
	// Stop ends the part and waits until it has ended or ctx ends. It is called once, and only
	// after a successful Start.
	Stop(ctx context.Context) error
}

// Named is a service with its name for errors and logs.
type Named struct {
	Name string
	Service
}

// Run logs the version, starts the services in order, waits until ctx ends or one of them fails,
// and stops the started ones in reverse order within grace. List dependencies first: a consumer
// then stops before the sender it uses.
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
			break // a stop was requested, or an earlier part failed: err is at most a consequence
		}
		if err != nil {
			return fmt.Errorf("start %s: %w", s.Name, err)
		}
	}
	<-running.Done()
	if ctx.Err() != nil {
		return nil // a stop was requested
	}
	return context.Cause(running)
}

func stopAll(log *slog.Logger, grace time.Duration, started []Named) error {
	// ctx has ended; the clean-up needs its own context.
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
