// Command ses-sim runs the SES simulator of package sessim: point SES_ENDPOINT at it
// and look at its inbox. It is started by dev.sh, the end-to-end tests and the
// benchmarks.
//
// SES_SIM_ADDR (127.0.0.1:8005; port 0 takes a free one) is where it listens,
// SES_SIM_MAX_SEND_RATE (10000) what GetAccount reports. SES_SIM_EVENTS_URL is whom it
// tells of the mails it accepted, over an SNS of its own (nobody), SES_SIM_EVENTS_TOPIC
// the topic's ARN, SES_SIM_EVENTS_BASE_URL how that endpoint reaches the simulator
// (http:// and the address it listens on), SES_SIM_EVENTS_SIGNATURE 1 or 2.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/service"
)

// grace is how long calls in flight may go on after the signal to stop. Those that a
// fault holds back longer are cut.
const grace = 3 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, os.Args[1:], os.Getenv, log); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			log.Error("ses-sim stops", "error", err)
		}
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, getenv func(string) string, log *slog.Logger) error {
	cfg, addr, healthcheck, err := configure(args, getenv)
	if err != nil {
		return err
	}
	if healthcheck {
		return service.Healthcheck(ctx, addr)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	sim := sessim.New(cfg)
	defer sim.Close()
	if err := sim.Publish(publication(getenv, listener.Addr().String())); err != nil {
		_ = listener.Close()
		return fmt.Errorf("SES_SIM_EVENTS_…: %w", err)
	}
	server := &http.Server{Handler: sim, ReadHeaderTimeout: 10 * time.Second}
	log.Info("ses-sim listens", "addr", listener.Addr().String())

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	return shutDown(server, sim)
}

func shutDown(server *http.Server, sim *sessim.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		sim.Close()
		err = server.Close()
	}
	if err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}
