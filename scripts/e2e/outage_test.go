package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// SES refuses connections for 20 s while 100 emails are being sent: some have tried before the circuit breaker opens,
// the others wait.
func TestSESRefusesConnections(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	at, refuse := serveSESUntil(t, freeAddress(t), s.ses)
	s.restartWorker(map[string]string{"SES_ENDPOINT": "http://" + at})
	refuse()
	for i := range 100 {
		s.send(fmt.Sprintf("cliente%d@example.com", i), nil)
	}
	awaitOpened(s, "NETWORK_ERROR")
	<-time.After(20 * time.Second) // the outage itself
	serveSES(t, at, s.ses)
	s.awaitAll(100, "SENT")
	s.sentOnce(100)
}

// Redis is stopped for 10 s while emails are sent: the api is not affected, and afterwards each email was sent once.
// asynq cannot record the tasks that end while Redis is down and delivers them again up to two minutes later; the
// fence must prevent a second send.
func TestRedisStops(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"WORKER_CONCURRENCY": "16"})
	if err := s.ses.SetSettings(slowedBy(s.ses.Settings(), 300)); err != nil {
		t.Fatal(err)
	}
	const before, during = 60, 60
	for i := range before {
		s.send(fmt.Sprintf("antes%d@example.com", i), nil)
	}
	eventually(t, func() error {
		if n := s.ses.Summary().Requests; n < 10 {
			return fmt.Errorf("%d requests at SES so far", n)
		}
		return nil
	})
	s.redis.Stop()
	stopped := time.Now()
	for i := range during {
		s.send(fmt.Sprintf("durante%d@example.com", i), nil)
	}
	<-time.After(time.Until(stopped.Add(10 * time.Second))) // the outage itself
	s.redis.Start()
	s.awaitAll(before+during, "SENT")
	s.awaitQuietQueues()
	s.sentOnce(before + during)
}

// A worker that is stopped finishes its active tasks; the next worker handles the waiting ones. Nothing is lost or
// sent twice.
func TestWorkerStopsGracefully(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"WORKER_CONCURRENCY": "8"})
	if err := s.ses.SetSettings(slowedBy(s.ses.Settings(), 150)); err != nil {
		t.Fatal(err)
	}
	const n = 120
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { s.send(fmt.Sprintf("cliente%d@example.com", i), nil) })
	}
	for range 4 {
		seen := s.ses.Summary().Requests
		eventually(t, func() error {
			if now := s.ses.Summary().Requests; now < min(seen+8, n) {
				return fmt.Errorf("%d requests at SES", now)
			}
			return nil
		})
		s.restartWorker(nil)
	}
	group.Wait()
	s.awaitAll(n, "SENT")
	s.sentOnce(n)
}

// The send rate and the state of SES in /health are from the same call, one per worker and minute: AWS limits the calls
// of an account.
func TestGetAccount_OncePerMinute(t *testing.T) {
	t.Parallel()
	started := time.Now()
	s := startSystem(t, nil)
	eventually(t, func() error {
		if _, answer := s.call(http.MethodGet, "/health", nil, nil); !strings.Contains(string(answer), `"ses":{"status":"connected"}`) {
			return errors.New("/health does not say that SES is connected") // its answer has the time
		}
		return nil
	})
	most := 1 + int64(time.Since(started)/(50*time.Second))
	if calls := s.ses.Summary().AccountCalls; calls < 1 || calls > most {
		t.Errorf("%d calls, want at most %d", calls, most)
	}
}

// An emulator that many teams use answers 404 to GetAccount, repeats its message ids and closes idle connections
// after 5 s.
func TestForeignEmulator(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	emulator := &foreignEmulator{}
	s.restartWorker(map[string]string{"SES_ENDPOINT": "http://" + serveSES(t, "127.0.0.1:0", emulator)})
	first := s.await(s.send("ana@example.com", nil), "SENT")
	<-time.After(6 * time.Second) // the emulator hangs up
	second := s.await(s.send("bea@example.com", nil), "SENT")
	if first.SESMessageID == "" || first.SESMessageID != second.SESMessageID {
		t.Errorf("ids %q and %q, want the emulator's same one", first.SESMessageID, second.SESMessageID)
	}
	if second.Attempts != 1 || second.PossibleDuplicate {
		t.Errorf("the closed connection cost a try: %+v", second)
	}
}

type foreignEmulator struct{}

func (*foreignEmulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v2/email/outbound-emails" {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("<UnknownOperationException/>"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"MessageId":"ses-123456789"}`))
}

// The waits between attempts are a tenth of the real table's, ±25 %, and no attempt is earlier, except by the half
// second by which the queue rounds. Other emails are sent meanwhile: if all were refused, it would be an outage, which
// costs no email its tries.
func TestBackoffInReality(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"EMAIL_BACKOFF": "100ms,500ms,3s,12s,60s"})
	id := s.send("sim-unavailable-json@example.com", nil)
	var others sync.WaitGroup
	over := make(chan struct{})
	others.Go(func() {
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				_, _, _ = s.try(http.MethodPost, "/v1/email/send", newBody("ana@example.com", nil), nil)
			}
		}
	})
	failed := s.await(id, "FAILED")
	close(over)
	others.Wait()
	requests := s.ses.Requests(id)
	if len(requests) != 5 {
		t.Fatalf("%d requests, want 5", len(requests))
	}
	var waits []time.Duration
	for _, event := range failed.Events {
		if event.Type == "RETRY_SCHEDULED" {
			ms, _ := event.Metadata["backoffDelay"].(float64)
			waits = append(waits, time.Duration(ms)*time.Millisecond)
		}
	}
	bases := []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second, 12 * time.Second}
	if len(waits) != len(bases) {
		t.Fatalf("waits of %v, want %d", waits, len(bases))
	}
	for i, base := range bases {
		if waits[i] < base*3/4 || waits[i] > base*5/4 {
			t.Errorf("wait %d = %s, want %s to %s", i+1, waits[i], base*3/4, base*5/4)
		}
		if gap := requests[i+1].Time.Sub(requests[i].Time); gap < waits[i]-500*time.Millisecond {
			t.Errorf("attempt %d was %s after the one before it, want %s", i+2, gap, waits[i])
		}
	}
}

// A suspended company's emails wait, and are sent after it is resumed.
func TestSuspendedCompany(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	s.await(s.send("ana@example.com", nil), "SENT")
	later := s.send("bea@example.com", func(b map[string]any) {
		b["sendAt"] = time.Now().Add(time.Hour).Format(time.RFC3339)
	})
	s.gatewayctl("company", "suspend", "Acme", "--reason", "unpaid")
	s.dispatcher.stop()
	s.db.Run(s.t, "UPDATE email_outbox SET next_at = now() WHERE id = '"+later+"'")
	s.dispatcher = startProgram(t, "dispatcher", s.env) // it lists all lanes
	other := *s
	other.key = s.newKey("Beta", "billing@beta.example")
	other.await(other.send("ana@example.com", nil), "SENT")
	var status string
	if err := s.db.SQL.QueryRowContext(t.Context(), "SELECT status FROM email_outbox WHERE id = $1", later).Scan(&status); err != nil {
		t.Fatal(err)
	}
	if status != "PENDING" {
		t.Errorf("status = %s while suspended, want PENDING", status)
	}
	s.gatewayctl("company", "resume", "Acme")
	s.awaitAll(3, "SENT")
	s.sentOnce(3)
}

// Two workers and two dispatchers, one of each frozen for a while: no email is sent twice.
func TestFrozenProcesses(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	frozen := startProgram(t, "dispatcher", s.env)
	startProgram(t, "worker", s.env)
	const n = 200
	for i := range n {
		s.send(fmt.Sprintf("cliente%d@example.com", i), nil)
		switch i {
		case 50:
			frozen.freeze()
		case 150:
			frozen.signal(syscall.SIGCONT)
		}
	}
	s.awaitAll(n, "SENT")
	s.sentOnce(n)
}

// The dispatcher is killed repeatedly between taking rows and recording the result. A task may then be queued without
// a record in Postgres; the dispatcher finds it and does not enqueue another.
func TestDispatcherKilled(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const n, kills = 300, 8
	var group sync.WaitGroup
	group.Go(func() {
		for i := range n {
			s.send(fmt.Sprintf("cliente%d@example.com", i), nil)
		}
	})
	for i := range kills {
		eventually(t, func() error {
			if sent, want := s.ses.Summary().Accepted, int64(n*i/(2*kills)); sent < want {
				return fmt.Errorf("%d emails sent, waiting for %d", sent, want)
			}
			return nil
		})
		s.dispatcher.kill()
		s.dispatcher = startProgram(t, "dispatcher", s.env)
	}
	group.Wait()
	s.awaitAll(n, "SENT")
	s.sentOnce(n)
}
