package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A stop is not a failure: programs that are stopped under load (requests, uploads, provider calls, tasks of both
// brokers, loops during a query) log nothing at level error.
func TestStop_LogsNoError(t *testing.T) {
	t.Parallel()
	env := bulk(t, brokerURL(t))
	env["RECIPIENTS_BATCH_TIMEOUT_MS"] = "100"
	s := startSystem(t, env)
	if err := s.ses.SetSettings(slowedBy(s.ses.Settings(), 50)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var loads sync.WaitGroup
	defer loads.Wait()
	defer cancel()
	sheet := newSpreadsheet(t, 100)
	address, client := s.api.addr, *s // with the first api, whose address all others have
	repeat := func(interval time.Duration, what func(i int)) {
		loads.Go(func() {
			tick := time.NewTicker(interval)
			defer tick.Stop()
			for i := 0; ctx.Err() == nil; i++ {
				what(i)
				<-tick.C
			}
		})
	}
	for n := range 2 {
		repeat(20*time.Millisecond, func(i int) {
			_, _, _ = client.try(http.MethodPost, "/v1/email/send", newBody(fmt.Sprintf("s%d-%d@example.com", n, i), nil), nil)
		})
	}
	repeat(20*time.Millisecond, func(i int) {
		person := map[string]any{"externalId": fmt.Sprint("P-", i), "email": fmt.Sprintf("p%d@example.com", i)}
		_, _, _ = client.try(http.MethodPost, "/v1/recipients", person, nil)
	})
	repeat(time.Second, func(i int) { _, _, _ = client.tryUpload(fmt.Sprintf("%d.csv", i), sheet.file, nil) })

	for round := range 3 {
		for _, p := range []**program{&s.api, &s.dispatcher, &s.worker} {
			awaitProgress(s, 20)
			stopped := *p
			start := time.Now() // before it a busy broker may have timed out, which is an error
			stopped.signal(syscall.SIGTERM)
			stopped.await()
			if err := stopped.process.Err(); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			for line := range strings.Lines(stopped.logged()) {
				var entry struct {
					Level     string
					Timestamp time.Time
				}
				if json.Unmarshal([]byte(line), &entry) != nil || entry.Level == "error" && entry.Timestamp.After(start) {
					t.Errorf("round %d: %s: %s", round, stopped.name, line)
				}
			}
			*p = startProgram(t, stopped.name, s.env, map[string]string{"API_ADDR": address})
		}
	}
}
