package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/logtest"
	"email-gateway/shared/store"
	"email-gateway/shared/store/process"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/status"
)

func up(context.Context) error   { return nil }
func down(context.Context) error { return errors.New("connection refused by 10.0.0.7") }

func hanging(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestReporter_WritesAndDeletesRow(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	registry := telemetry.NewRegistry()
	reporter := status.NewReporter(status.Params{
		Log: slog.New(slog.DiscardHandler), Store: d.Store, Service: "worker", Instance: "one",
		Probes: map[string]status.Probe{"redis": up, "ses": down},
		Facts:  func(context.Context) map[string]any { return map[string]any{"concurrency": 7} }, Registry: registry,
	})
	if err := reporter.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	rows := waitForRows(t, d.Store, 1)
	var details struct {
		Redis, SES  struct{ Status string }
		Concurrency int
	}
	if err := json.Unmarshal(rows[0].Details, &details); err != nil {
		t.Fatal(err)
	}
	if details.Redis.Status != "connected" || details.SES.Status != "disconnected" || details.Concurrency != 7 {
		t.Errorf("details = %s", rows[0].Details)
	}
	waitForDependencies(t, registry, map[string]float64{"database": 1, "replication": 1, "redis": 1, "ses": 0})
	if n, err := d.Store.LiveProcesses(t.Context(), "worker"); n != 1 || err != nil {
		t.Errorf("live workers = %d, %v; want 1", n, err)
	}
	if err := reporter.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitForRows(t, d.Store, 0)
}

// The names of two processes differ although their hosts' names and process ids may be the same, as those of containers that use
// the host's network.
func TestInstance_DiffersBetweenProcesses(t *testing.T) {
	t.Parallel()
	const printIt = "print-instance"
	if slices.Contains(os.Args, printIt) {
		fmt.Fprintln(os.Stdout, "instance", status.Instance(), status.Instance())
		return
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range 2 {
		other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestInstance_DiffersBetweenProcesses$", printIt)
		output, err := other.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		names := regexp.MustCompile(`(?m)^instance (\S+) (\S+)$`).FindStringSubmatch(string(output))
		if names == nil || names[1] != names[2] {
			t.Fatalf("%q: want the same name twice", output)
		}
		suffix, found := strings.CutPrefix(names[1], fmt.Sprintf("%s-%d-", host, other.Process.Pid))
		if !found || seen[suffix] {
			t.Errorf("%s: want host, process id and characters that no other process has", names[1])
		}
		seen[suffix] = true
	}
}

// away is a database that is down.
type away struct{}

func (away) ReportStatus(context.Context, string, string, time.Time, any) error {
	return store.ErrUnavailable
}
func (away) WithdrawStatus(context.Context, string, string) error { return store.ErrUnavailable }

func TestReporter_DatabaseState(t *testing.T) {
	t.Parallel()
	registry := telemetry.NewRegistry()
	reporter := status.NewReporter(status.Params{
		Log: slog.New(slog.DiscardHandler), Store: away{}, Service: "worker", Instance: "one",
		Probes: map[string]status.Probe{"redis": up}, Registry: registry,
	})
	if err := reporter.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	defer reporter.Stop(context.WithoutCancel(t.Context())) //nolint:errcheck // ends with the test
	waitForDependencies(t, registry, map[string]float64{"database": 0, "redis": 1})
}

// waitForDependencies waits until gateway_dependency_up is as wanted.
func waitForDependencies(t *testing.T, registry *prometheus.Registry, want map[string]float64) {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "gateway_dependency_up" {
					got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
		if maps.Equal(got, want) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%v, want %v", got, want)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func waitForRows(t *testing.T, s *store.Store, n int) []process.Status {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		rows, err := s.ProcessStatuses(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == n {
			return rows
		}
		select {
		case <-deadline:
			t.Fatalf("%d rows, want %d", len(rows), n)
		default:
		}
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ready map[string]status.Probe
		path  string
		code  int
	}{
		"alive whatever is down":  {map[string]status.Probe{"redis": down}, "/livez", http.StatusOK},
		"ready":                   {map[string]status.Probe{"redis": up, "database": up}, "/readyz", http.StatusOK},
		"not ready":               {map[string]status.Probe{"redis": down, "database": up}, "/readyz", http.StatusServiceUnavailable},
		"a dependency that hangs": {map[string]status.Probe{"redis": hanging}, "/readyz", http.StatusServiceUnavailable},
		"metrics":                 {nil, "/metrics", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := httptest.NewRecorder()
			status.Handler(telemetry.NewRegistry(), c.ready).
				ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil))
			if answer.Code != c.code {
				t.Errorf("%s: %d %s, want %d", c.path, answer.Code, answer.Body, c.code)
			}
		})
	}
}

// reports are the status rows that a reporter has written.
type reports struct {
	mu  sync.Mutex
	all []map[string]any
}

func (r *reports) ReportStatus(_ context.Context, _, _ string, _ time.Time, details any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	row, _ := details.(map[string]any)
	r.all = append(r.all, row)
	return nil
}

func (*reports) WithdrawStatus(context.Context, string, string) error { return nil }

func (r *reports) last() any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[len(r.all)-1]["sendRate"]
}

// The log says why a dependency does not respond, but not of one that has no connection yet when the program starts.
func TestReporter_LogsChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Buffer{}
		var denied atomic.Bool
		connected := time.Now().Add(time.Second)
		reporter := status.NewReporter(status.Params{
			Log: slog.New(slog.NewTextHandler(log, nil)), Store: &reports{}, Service: "worker", Instance: "one", Registry: telemetry.NewRegistry(),
			Probes: map[string]status.Probe{
				"redis": func(context.Context) error {
					if time.Now().Before(connected) {
						return errors.New("no connection yet")
					}
					return nil
				},
				"storage": func(context.Context) error {
					if denied.Load() {
						return errors.New("403 AccessDenied")
					}
					return nil
				},
			},
		})
		if err := reporter.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
			t.Fatal(err)
		}
		for _, down := range []bool{false, true, true, false} {
			denied.Store(down)
			<-time.After(6 * time.Second)
		}
		if err := reporter.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if log.Count("dependency does not respond") != 1 || log.Count("403 AccessDenied") != 1 || log.Count("dependency responds again") != 1 {
			t.Errorf("logged: %s", log.String())
		}
	})
}

// unwritable refuses rows after the first.
type unwritable struct {
	reports
	written bool
	err     error
}

func (u *unwritable) ReportStatus(context.Context, string, string, time.Time, any) error {
	if u.written {
		return u.err
	}
	u.written = true
	return nil
}

// The log says why the row is not written, once.
func TestReporter_LogsDatabase(t *testing.T) {
	t.Parallel()
	for dependency, err := range map[string]error{
		"database": errors.New("connection refused"), "replication": errors.Join(store.ErrUnknownOutcome, store.ErrUnreplicated),
		`database error="no response within 2s`: context.DeadlineExceeded,
	} {
		synctest.Test(t, func(t *testing.T) {
			log := &logtest.Buffer{}
			reporter := status.NewReporter(status.Params{
				Log: slog.New(slog.NewTextHandler(log, nil)), Store: &unwritable{err: err}, Service: "worker", Instance: "one", Registry: telemetry.NewRegistry(),
			})
			if err := reporter.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Minute)
			if err := reporter.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if log.Count(`msg="dependency does not respond" dependency=`+dependency) != 1 || log.Count("level=") != 1 {
				t.Errorf("%s: logged: %s", dependency, log.String())
			}
		})
	}
}

// A fact that others rely on is reported when it changes, not five seconds later.
func TestReporter_Wake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wake, written := make(chan struct{}, 1), &reports{}
		var rate atomic.Int64
		reporter := status.NewReporter(status.Params{
			Log: slog.New(slog.DiscardHandler), Store: written, Service: "worker", Instance: "one", Registry: telemetry.NewRegistry(), Wake: wake,
			Facts: func(context.Context) map[string]any { return map[string]any{"sendRate": rate.Load()} },
		})
		if err := reporter.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Millisecond) // the first round
		start := time.Now()
		for change := range int64(5) {
			rate.Store(change)
			wake <- struct{}{}
			synctest.Wait()
			if got := written.last(); got != change || time.Since(start) > 0 {
				t.Errorf("%v is reported after %s, want %d at once", got, time.Since(start), change)
			}
		}
		if err := reporter.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
