package process_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"email-gateway/shared/store/process"
	"email-gateway/shared/store/storetest"
)

func TestProcessStatus(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s := process.New(d.Store.DB())
	start := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
	report := func(service, instance string, details any) {
		t.Helper()
		if err := s.ReportStatus(t.Context(), service, instance, start, details); err != nil {
			t.Fatal(err)
		}
	}
	statuses := func() string {
		t.Helper()
		all, err := s.ProcessStatuses(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, p := range all {
			lines = append(lines, fmt.Sprint(p.Service, " ", p.Instance, " ", p.Age.Round(time.Minute), " ", string(p.Details)))
			if !p.StartedAt.Equal(start) {
				t.Errorf("%s started at %s", p.Instance, p.StartedAt)
			}
		}
		return strings.Join(lines, "\n")
	}
	report("worker", "w1", map[string]any{"redis": "ok"})
	report("dispatcher", "d1", nil)
	d.Run(t, `UPDATE process_status SET updated_at = now() - interval '10 min' WHERE instance = 'w1'`)
	if got, want := statuses(), "dispatcher d1 0s null\nworker w1 10m0s {\"redis\": \"ok\", \"synchronousCommit\": \"on\"}"; got != want {
		t.Error(got)
	}
	report("worker", "w1", map[string]any{"redis": "down"})
	if got, want := statuses(), "dispatcher d1 0s null\nworker w1 0s {\"redis\": \"down\", \"synchronousCommit\": \"on\"}"; got != want {
		t.Error(got)
	}
	// The next report deletes processes without a report for an hour, except for the reporting one.
	d.Run(t, `UPDATE process_status SET updated_at = now() - interval '2 h'`)
	report("worker", "w1", "back")
	if got, want := statuses(), "worker w1 0s \"back\""; got != want {
		t.Error(got)
	}
	// A process that reported to a server whose clock was an hour ahead does not count, and the next report deletes it.
	report("worker", "w2", "ahead")
	d.Run(t, `UPDATE process_status SET updated_at = now() + interval '1 h' WHERE instance = 'w2'`)
	if n, err := s.LiveProcesses(t.Context(), "worker"); err != nil || n != 1 {
		t.Errorf("%d live workers, %v, want 1", n, err)
	}
	if got, want := statuses(), "worker w1 0s \"back\"\nworker w2 1h0m0s \"ahead\""; got != want {
		t.Error(got)
	}
	report("worker", "w1", "back")
	if got, want := statuses(), "worker w1 0s \"back\""; got != want {
		t.Error(got)
	}
	if err := s.WithdrawStatus(t.Context(), "worker", "w1"); err != nil || statuses() != "" {
		t.Errorf("withdrawn: %v, %s", err, statuses())
	}
	if err := s.ReportStatus(t.Context(), "api", "a1", start, nil); err == nil {
		t.Error("a report of the api was accepted")
	}
	if err := s.ReportStatus(t.Context(), "worker", "w1", start, make(chan int)); err == nil {
		t.Error("details that cannot be encoded were accepted")
	}
}

// Many processes report at once, and each deletes stale ones.
func TestReportStatus_ManyAtOnce(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s := process.New(d.Store.DB())
	d.Run(t, `INSERT INTO process_status (service, instance, started_at, updated_at, details)
		SELECT 'worker', 'dead-' || n, now(), now() - interval '2 h', '{}' FROM generate_series(1, 50) n`)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := s.ReportStatus(t.Context(), "worker", fmt.Sprint("w", i), time.Now(), nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := storetest.Ask[int](t, d, `SELECT count(*) FROM process_status`); n != 20 {
		t.Errorf("%d processes, want 20", n)
	}
}
