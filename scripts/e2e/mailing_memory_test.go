package e2e_test

import (
	"fmt"
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
	measure := func(name string, rows int) (api, worker int64) {
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
		api, worker = s.api.peakMemory(), s.worker.peakMemory()
		t.Logf("%d rows (%d MiB, made in %s): accepted in %s, expanded in %s; peak memory: api %d MiB, worker %d MiB", rows, len(sheet.file)>>20,
			made.Sub(start).Round(time.Millisecond), taken.Sub(made).Round(time.Millisecond), time.Since(taken).Round(time.Millisecond), api>>20, worker>>20)
		return api, worker
	}
	apiFew, workerFew := measure("mil.csv", 1000)
	apiMany, workerMany := measure("muitas.csv", rows)
	const room = 32 << 20
	if apiMany > apiFew+room || workerMany > workerFew+room {
		t.Errorf("api %d bytes instead of %d, worker %d instead of %d", apiMany, apiFew, workerMany, workerFew)
	}
}
