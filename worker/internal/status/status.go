// Package status is what a dispatcher or worker tells about itself: to an
// orchestrator at /livez and /readyz, and to the api's /health and to operators
// through its row in process_status. The two main functions use it.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

const (
	// interval is how often the row is written. Readers take a row older than three
	// of these for a process that is gone.
	interval = 5 * time.Second
	// probeTimeout bounds one look at one dependency, so that all of them fit into
	// the interval.
	probeTimeout = 2 * time.Second
)

// Probe looks at one dependency; nil means that it answers.
type Probe func(ctx context.Context) error

// Seldom is a probe that really looks only once per period, or per sixth of it while
// the dependency does not answer, and otherwise repeats what it saw: for one that
// must not be asked often.
func Seldom(period time.Duration, probe Probe) Probe {
	var (
		mu   sync.Mutex
		next time.Time
		seen error
	)
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if time.Now().Before(next) {
			return seen
		}
		seen, next = probe(ctx), time.Now().Add(period)
		if seen != nil {
			next = time.Now().Add(period / 6)
		}
		return seen
	}
}

// Store keeps the rows.
type Store interface {
	ReportStatus(ctx context.Context, service, instance string, startedAt time.Time, details any) error
	WithdrawStatus(ctx context.Context, service, instance string) error
}

// Instance names this process among those of its service.
func Instance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// Params make a Reporter.
type Params struct {
	Log      *slog.Logger
	Store    Store
	Service  string // dispatcher or worker
	Instance string // unique among the processes of the service
	// Probes are the dependencies by the name that /health gives them.
	Probes map[string]Probe
	// Facts are further entries of the row, asked for each time, within 2 s; nil if there
	// are none.
	Facts func(ctx context.Context) map[string]any
	// Wake has the row written at once, when a fact has changed that others go by; nil if
	// none does.
	Wake     <-chan struct{}
	Registry prometheus.Registerer
}

// Reporter is the service that keeps the process's row up to date, and takes it
// away when the process ends in good order.
type Reporter struct {
	*service.Loop
	params Params
	began  time.Time
	up     telemetry.Dependencies
}

// database is where the row is written, and what that finds out about it.
const database = "database"

// NewReporter makes a Reporter.
func NewReporter(p Params) *Reporter {
	names := append(slices.Collect(maps.Keys(p.Probes)), database)
	r := &Reporter{params: p, began: time.Now(), up: telemetry.NewDependencies(names...)}
	p.Registry.MustRegister(r.up)
	r.Loop = service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: interval, ErrorDelay: interval, Wake: p.Wake, RunOnce: r.runOnce,
	})
	return r
}

// Stop ends the loop and withdraws the row.
func (r *Reporter) Stop(ctx context.Context) error {
	if err := r.Loop.Stop(ctx); err != nil {
		return err
	}
	// A row that stays is no harm: it grows old and is cleared away.
	if err := r.params.Store.WithdrawStatus(ctx, r.params.Service, r.params.Instance); err != nil {
		r.params.Log.Warn("status row left behind", "error", err)
	}
	return nil
}

func (r *Reporter) runOnce(ctx context.Context) (bool, error) {
	details := map[string]any{}
	if r.params.Facts != nil {
		asked, cancel := context.WithTimeout(ctx, probeTimeout)
		maps.Copy(details, r.params.Facts(asked))
		cancel()
	}
	for name, err := range probeAll(ctx, r.params.Probes) {
		details[name] = part(err)
		r.up.Set(name, err == nil)
	}
	// A commit may wait for a standby that is gone: the gauge must say so before the alert's time is over.
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := r.params.Store.ReportStatus(ctx, r.params.Service, r.params.Instance, r.began, details)
	r.up.SetDatabase(err, errors.Is(err, store.ErrUnreplicated))
	return false, err
}

// part is how a dependency stands in the row and in /readyz. Why it does not answer
// stays in the log: the text may hold addresses of machines.
func part(err error) map[string]string {
	if errors.Is(err, store.ErrUnreplicated) {
		return map[string]string{"status": "unreplicated"}
	}
	if err != nil {
		return map[string]string{"status": "disconnected"}
	}
	return map[string]string{"status": "connected"}
}

// probeAll looks at all dependencies side by side: one that hangs delays no other.
func probeAll(ctx context.Context, probes map[string]Probe) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	type answer struct {
		name string
		err  error
	}
	answers := make(chan answer, len(probes))
	for name, probe := range probes {
		go func() { answers <- answer{name, probe(ctx)} }()
	}
	found := make(map[string]error, len(probes))
	for range probes {
		select {
		case a := <-answers:
			found[a.name] = a.err
		case <-ctx.Done():
			for name := range probes {
				if _, answered := found[name]; !answered {
					found[name] = ctx.Err()
				}
			}
			return found
		}
	}
	return found
}

// Handler answers /livez (200 as long as the process runs, whatever it depends on),
// /readyz (503 while a dependency of ready does not answer) and /metrics.
func Handler(registry *prometheus.Registry, ready map[string]Probe) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		code, body := http.StatusOK, map[string]any{"status": "ok"}
		for name, err := range probeAll(r.Context(), ready) {
			if err != nil {
				code, body["status"] = http.StatusServiceUnavailable, "unavailable"
			}
			body[name] = part(err)
		}
		writeJSON(w, code, body)
	})
	mux.Handle("GET /metrics", telemetry.MetricsHandler(registry))
	return mux
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the reader may be gone
}
