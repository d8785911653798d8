package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"email-gateway/scripts/bench"
	"email-gateway/scripts/local/programtest"
)

func TestList(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if ok, err := run(t.Context(), &out, []string{"-list"}); err != nil || !ok {
		t.Fatal(err)
	}
	for _, s := range bench.Sections() {
		if !strings.Contains(out.String(), s.Name) {
			t.Errorf("%s is not listed", s.Name)
		}
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for flag, field := range map[string]string{"-rounds=0": "rounds", "-section=lunch": "section", "-lunch": "lunch"} {
		if ok, err := run(t.Context(), new(bytes.Buffer), []string{flag}); err == nil || ok || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v, %v", flag, ok, err)
		}
	}
}

// The program measures a real gateway, writes the rows, and exits with 0 if and only if every
// budget was met. It leaves no running processes.
func TestAccept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	work, profiles := filepath.Join(dir, "work"), filepath.Join(dir, "profiles")
	var rows []struct {
		Section, Unit            string
		Median, Reference, Ratio *float64
		Budget                   *float64
		Met                      *bool
	}
	out, ok := programtest.Run(t, &rows, "-quick", "-rounds", "1", "-section", "accept", "-dir", work, "-profiles", profiles)
	compared, missed := 0, 0
	for _, row := range rows {
		if row.Section != "accept" || row.Unit == "" || row.Median == nil || *row.Median < 0 {
			t.Errorf("a row is %+v", row)
		}
		if row.Ratio != nil && *row.Median > 0 && *row.Reference > 0 {
			compared++
		}
		if row.Met != nil && !*row.Met {
			missed++
		}
	}
	if compared != 5 {
		t.Errorf("%d comparisons, want two at each number of connections and one of batches:\n%s", compared, out)
	}
	if ok != (missed == 0) {
		t.Errorf("%d budgets were missed, the program exited with 0: %v", missed, ok)
	}
	if !bytes.Contains(out, []byte("fsync on, synchronous_commit on; redis appendonly yes, appendfsync everysec")) {
		t.Error("the settings for durability are not printed, or are off")
	}
	// One per measurement of the api in each round, compressed in pprof's format.
	written, err := filepath.Glob(filepath.Join(profiles, "api-*.pprof"))
	if err != nil || len(written) != 3 {
		t.Errorf("profiles: %v %v", written, err)
	}
	for _, name := range written {
		if text, err := os.ReadFile(name); err != nil || !bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
			t.Errorf("%s is no profile: %.20q %v", name, text, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(work, "services", "*", "pid")); err != nil || len(left) > 0 {
		t.Errorf("servers still running: %v %v", left, err)
	}
}
