package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"email-gateway/scripts/docs"
)

// Before the runbook lists what came after the dump, it distinguishes logs without such lines from logs that it cannot read.
func TestRunbook_ChecksLogs(t *testing.T) {
	t.Parallel()
	blocks := operationsBlocks(t)
	check := blocks[slices.IndexFunc(blocks, func(b docs.Block) bool { return b.Section == "What came after the dump" })]
	line := func(at, message string) string {
		return `{"level":"info","timestamp":"2026-03-01T` + at + `.000Z","service":"s","environment":"e","message":"` + message + `","context":{}}` + "\n"
	}
	wrapped := func(text string) string { return `{"log":` + strconv.Quote(text) + `,"stream":"stdout"}` + "\n" }
	api, worker := line("08:00:00", "starting")+line("09:30:00", "request"), line("08:00:00", "starting")+line("09:30:00", "email moved")
	tests := []struct {
		name string
		logs map[string]string
		want string // printed
		ok   bool
	}{
		{"readable", map[string]string{"api-1.log": api, "worker-1.log": worker}, "worker-1.log: 1 lines, 2026-03-01T08:00:00.000Z to 2026-03-01T09:30:00.000Z\n", true},
		{"an idle api", map[string]string{"api-1.log": api, "api-2.log": line("08:00:00", "starting"), "worker-1.log": worker}, "api-2.log: 0 lines, ", true},
		{
			"SES's events are faster than the workers",
			map[string]string{"api-1.log": api, "worker-1.log": line("08:00:00", "starting") + line("09:30:00", "feedback recorded the email as sent before this result")},
			"worker-1.log: 1 lines, ", true,
		},
		{"begins late", map[string]string{"api-1.log": api, "worker-1.log": line("09:20:00", "email moved")}, "09:20:00.000Z, begins after the dump\n", true},
		{"wrapped", map[string]string{"api-1.log": api, "worker-1.log": worker, "worker-2.log": wrapped(worker)}, "worker-2.log: no readable line\n", false},
		{"empty", map[string]string{"api-1.log": "", "worker-1.log": worker}, "api-1.log: no readable line\n", false},
		{"no requests", map[string]string{"api-1.log": line("09:30:00", "request failed"), "worker-1.log": worker}, "the apis have logged nothing since the dump\n", false},
		{"no results", map[string]string{"api-1.log": api, "worker-1.log": line("08:59:00", "email moved")}, "the workers have logged nothing since the dump\n", false},
		{"no file of a worker", map[string]string{"api-1.log": api}, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			backup, logs := t.TempDir(), t.TempDir()
			files := map[string]string{filepath.Join(backup, "begun"): "2026-03-01T09:00:00\n"}
			for name, text := range tt.logs {
				files[filepath.Join(logs, name)] = text
			}
			for file, text := range files {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			shell := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", check.Text)
			shell.Env = append(os.Environ(), "BACKUP="+backup, "LOGS="+logs)
			out, err := shell.CombinedOutput()
			if (err == nil) != tt.ok || !strings.Contains(string(out), tt.want) {
				t.Errorf("%v, printed\n%s\nwant %q", err, out, tt.want)
			}
		})
	}
}
