package e2e_test

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/servertest"
)

// A file of a million rows costs api and worker no more memory than one of a thousand, within 32 MiB.
// MAILING_ROWS=1000000 sets that size.
func TestMailing_Memory(t *testing.T) {
	rows := mailingRows(t, 100_000)
	env := bulk(t, servertest.Start(t, "rabbitmq").URL)
	env["MAILING_LEAD"] = "10000000"
	s := startSystem(t, env)
	s.setSending(false) // the expander is what a file's size could matter to
	measure := func(name string, rows int) (api, worker int) {
		s.api.stop()
		s.worker.stop()
		s.api = startProgram(t, "api", s.env)
		s.worker = startProgram(t, "worker", s.env)
		start := time.Now()
		sheet := newSpreadsheet(t, rows)
		made := time.Now()
		id := s.mail(name, sheet, nil)
		taken := time.Now()
		eventually(t, func() error {
			if n := expandedRows(s, id); n < len(sheet.people) {
				return fmt.Errorf("%d of %d rows expanded", n, len(sheet.people))
			}
			return nil
		})
		api, worker = peakMemory(t, s.api), peakMemory(t, s.worker)
		t.Logf("%d rows (%d MiB, made in %s): accepted in %s, expanded in %s; peak memory: api %d MiB, worker %d MiB", rows, len(sheet.file)>>20,
			made.Sub(start).Round(time.Millisecond), taken.Sub(made).Round(time.Millisecond), time.Since(taken).Round(time.Millisecond), api>>10, worker>>10)
		return api, worker
	}
	apiFew, workerFew := measure("mil.csv", 1000)
	apiMany, workerMany := measure("muitas.csv", rows)
	const room = 32 << 10 // KiB
	if apiMany > apiFew+room || workerMany > workerFew+room {
		t.Errorf("api %d KiB instead of %d, worker %d KiB instead of %d", apiMany, apiFew, workerMany, workerFew)
	}
}

// peakMemory returns the maximum resident size of the process, in KiB.
func peakMemory(t *testing.T, p *program) int {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "VmHWM:"); found {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the kernel does not report the peak")
	return 0
}
