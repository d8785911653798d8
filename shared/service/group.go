package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// abortGrace is how long parts may take to stop after another one could not start.
const abortGrace = 30 * time.Second

// Group is a service of parts that do not depend on each other. They start in order and stop at the same time: the grace of
// Run is not spent on one part while another still takes work.
func Group(parts ...Named) Service { return &group{parts: parts} }

type group struct {
	parts   []Named
	started []Named
}

// Start starts the parts in order. If one fails, the started ones stop.
func (g *group) Start(ctx context.Context, failed func(error)) error {
	for _, part := range g.parts {
		err := part.Start(ctx, func(err error) { failed(fmt.Errorf("%s: %w", part.Name, err)) })
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortGrace)
			defer cancel()
			return errors.Join(fmt.Errorf("%s: %w", part.Name, err), g.Stop(ctx))
		}
		g.started = append(g.started, part)
	}
	return nil
}

// Stop stops the started parts concurrently.
func (g *group) Stop(ctx context.Context) error {
	errs := make([]error, len(g.started))
	var stopping sync.WaitGroup
	for i, part := range g.started {
		stopping.Go(func() {
			if err := part.Stop(ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", part.Name, err)
			}
		})
	}
	stopping.Wait()
	return errors.Join(errs...)
}
