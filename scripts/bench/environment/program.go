package environment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"email-gateway/scripts/local"
	"email-gateway/scripts/local/programs"
)

// Program is one process of a system.
type Program struct {
	Kind string // api, dispatcher, worker or naive
	Addr string // host:port of its HTTP server

	environment *Environment
	process     *programs.Program
}

// readyPath is the path of a program's readiness check.
var readyPath = map[string]string{"api": "/health", "dispatcher": "/readyz", "worker": "/readyz", "naive": "/health"}

// Start starts a program (api, dispatcher, worker, or naive) and returns when it is ready. env is
// for this program only. Any number of each may run.
func (s *System) Start(ctx context.Context, kind string, env map[string]string) (*Program, error) {
	addr, err := local.FreeAddress()
	if err != nil {
		return nil, err
	}
	all := maps.Clone(s.env)
	all[strings.ToUpper(kind)+"_ADDR"], all["METRICS_ADDR"] = addr, "127.0.0.1:0"
	maps.Copy(all, env)
	_, port, _ := strings.Cut(addr, ":")
	process, err := programs.Start(context.WithoutCancel(ctx), programs.Spec{ // Stop stops it gracefully
		Path: s.environment.bin(kind), Environ: programs.Environ(all),
		Log: filepath.Join(s.environment.cfg.Dir, "log", fmt.Sprintf("%s-%s-%s.log", s.name, kind, port)),
	})
	if err != nil {
		return nil, err
	}
	p := &Program{Kind: kind, Addr: addr, environment: s.environment, process: process}
	s.environment.started(p)
	return p, process.Await(ctx, programs.StartTimeout, programs.Responds("http://"+addr+readyPath[kind]))
}

// Usage returns the program's resource usage since its start.
func (p *Program) Usage() (local.Usage, error) { return local.UsageOf(p.process.PID()) }

// Stop stops the program gracefully. It is an error if the program has exited before, because
// measurements with it are invalid.
func (p *Program) Stop(ctx context.Context) error {
	defer p.environment.stopped(p)
	select {
	case <-p.process.Exited:
		return errors.Join(fmt.Errorf("%s exited unexpectedly", p.Kind), p.process.Err())
	default:
	}
	if err := p.process.Stop(ctx); err != nil {
		return err
	}
	return p.process.Err()
}
