// Package status reports the health of a dispatcher or worker: at /livez and /readyz for
// orchestrators, and in its process_status row for the api's /health and for operators. The two
// main packages use it.
package status

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

// interval is how often the row is written. Readers consider a process dead when its row is
// older than three intervals.
const interval = 5 * time.Second

// Store stores the status rows.
type Store interface {
	ReportStatus(ctx context.Context, service, instance string, startedAt time.Time, details any) error
	WithdrawStatus(ctx context.Context, service, instance string) error
}

// Instance names this process uniquely within its service, with the same name in each call. The random part
// distinguishes containers with the same host name, such as those that use the host's network, whose programs all have
// process id 1.
func Instance() string { return instance() }

var instance = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:6]))
})

// Params configure a Reporter.
type Params struct {
	Log      *slog.Logger
	Store    Store
	Service  string // dispatcher or worker
	Instance string // unique among the processes of the service
	// Probes are the dependencies by their names in /health.
	Probes map[string]Probe
	// Facts returns further fields of the row, within 2 s. Optional.
	Facts func(ctx context.Context) map[string]any
	// Wake triggers a write at once, when a fact has changed that others rely on. Optional.
	Wake     <-chan struct{}
	Registry prometheus.Registerer
}

// Reporter is the service that updates the process's status row, and deletes it on a clean stop.
type Reporter struct {
	*service.Loop
	params    Params
	probes    *prober
	startedAt time.Time
	up        telemetry.Dependencies
	changes   *telemetry.DependencyLog
}

// startupTime is how long a program may take to connect: failures until then are not logged.
const startupTime = 3 * time.Second

// database is the dependency whose state is the result of writing the row.
const database = "database"

// NewReporter makes a Reporter.
func NewReporter(p Params) *Reporter {
	names := append(slices.Collect(maps.Keys(p.Probes)), database)
	r := &Reporter{params: p, probes: newProber(p.Probes), startedAt: time.Now(), up: telemetry.NewDependencies(names...), changes: telemetry.NewDependencyLog(p.Log)}
	p.Registry.MustRegister(r.up)
	r.Loop = service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: interval, ErrorDelay: interval, Wake: p.Wake, RunOnce: r.runOnce,
	})
	return r
}

// Stop ends the loop and deletes the row.
func (r *Reporter) Stop(ctx context.Context) error {
	if err := r.Loop.Stop(ctx); err != nil {
		return err
	}
	// A remaining row is harmless: it expires and is deleted later.
	if err := r.params.Store.WithdrawStatus(ctx, r.params.Service, r.params.Instance); err != nil {
		r.params.Log.Warn("cannot delete the status row", "error", err)
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
	for name, err := range r.probes.all(ctx) {
		details[name] = part(err)
		r.up.Set(name, err == nil)
		if err == nil || time.Since(r.startedAt) >= startupTime {
			r.changes.Set(name, err)
		}
	}
	// A commit may wait for a lost standby: the gauge must show that before the alert's time has
	// passed.
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := r.params.Store.ReportStatus(ctx, r.params.Service, r.params.Instance, r.startedAt, details)
	unreplicated := errors.Is(err, store.ErrUnreplicated)
	r.up.SetDatabase(err, unreplicated)
	r.changes.SetDatabase(timedOut(err), unreplicated) // logs the error
	return false, nil
}

// part is a dependency's state in the row and in /readyz. The reason is only logged, by the
// Reporter: it may contain host addresses.
func part(err error) map[string]string {
	if errors.Is(err, store.ErrUnreplicated) {
		return map[string]string{"status": "unreplicated"}
	}
	if err != nil {
		return map[string]string{"status": "disconnected"}
	}
	return map[string]string{"status": "connected"}
}

// Handler serves /livez (200 as long as the process runs), /readyz (503 while a dependency in ready
// fails) and /metrics.
func Handler(registry *prometheus.Registry, ready map[string]Probe) *http.ServeMux {
	mux, probes := http.NewServeMux(), newProber(ready)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		code, body := http.StatusOK, map[string]any{"status": "ok"}
		for name, err := range probes.all(r.Context()) {
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
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
