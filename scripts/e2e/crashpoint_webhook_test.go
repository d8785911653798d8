package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/store/storetest"
)

// hook is a webhook endpoint that accepts and remembers what is verified.
type hook struct {
	mu     sync.Mutex
	verify *standard.Webhook
	ids    []string       // in order of arrival, without repetitions
	times  map[string]int // how often each came
	faults []string
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		err = h.verify.Verify(body, r.Header)
	}
	var event struct {
		Data struct {
			OutboxID string
			Seq      int
		}
	}
	if err == nil {
		err = json.Unmarshal(body, &event)
	}
	id := r.Header.Get("webhook-id")
	if want := fmt.Sprintf("%s.%d", event.Data.OutboxID, event.Data.Seq); err == nil && id != want {
		err = fmt.Errorf("the event %s came as %s", want, id)
	}
	if err != nil {
		h.faults = append(h.faults, err.Error())
		return
	}
	if h.times[id]++; h.times[id] == 1 {
		h.ids = append(h.ids, id)
	}
}

// A worker without keys reports the webhook endpoints that it cannot serve.
func TestWebhooks_WorkerWithoutKeys(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"WEBHOOK_ALLOW_PRIVATE": "true"})
	s.worker.stop()
	without := maps.Clone(s.env)
	delete(without, "CPF_CNPJ_KEYS")
	worker := startProgram(t, "worker", without)
	if n := strings.Count(worker.logged(), `"CPF_CNPJ_KEYS is not set`); n != 1 {
		t.Errorf("%d warnings at the start", n)
	}
	newHook(s, &hook{times: map[string]int{}})
	s.await(s.send("ana@example.com", nil), "SENT")
	eventually(t, func() error {
		if worker.metric("webhook_endpoint_errors_total") == 0 {
			return errors.New("webhook_endpoint_errors_total is 0")
		}
		return nil
	})
	eventually(t, func() error {
		if out := doctor(s, s.env); !strings.Contains(out, "lack keys of CPF_CNPJ_KEYS") {
			return errors.New(out)
		}
		return nil
	})
}

// newHook creates a webhook endpoint of received.
func newHook(s *system, received *hook) {
	s.t.Helper()
	server := httptest.NewServer(received)
	s.t.Cleanup(server.Close)
	out := s.gatewayctl("key", "create", "--company", "Acme", "--scopes", "webhooks:write,webhooks:read", "--rate", "0", "--json")
	var made struct{ Key, Secret string }
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		s.t.Fatalf("%s: %v", out, err)
	}
	status, answer := s.call(http.MethodPost, "/v1/webhooks", map[string]any{"url": server.URL}, map[string]string{"Authorization": "Bearer " + made.Key})
	if err := json.Unmarshal(answer, &made); err != nil || status != http.StatusCreated {
		s.t.Fatalf("%d %s", status, answer)
	}
	var err error
	if received.verify, err = standard.NewWebhook(made.Secret); err != nil {
		s.t.Fatal(err)
	}
}

// The worker dies at each step of delivering webhooks. Every event arrives, with the id that GET /v1/events shows
// and in order per email; what it had sent before it recorded it comes again.
func TestCrashPoints_Webhook(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"WEBHOOK_ALLOW_PRIVATE": "true"})
	received := &hook{times: map[string]int{}}
	newHook(s, received)
	s.worker.stop()
	n := 0
	for _, point := range []crashpoint.Point{crashpoint.WebhookLeased, crashpoint.WebhookRead, crashpoint.WebhookAnswered, crashpoint.WebhookRecorded} {
		for range 5 {
			s.send(fmt.Sprintf("cliente%d@example.com", n), nil)
			n++
		}
		s.startCrashing("worker", point, 1, nil).awaitCrash(point)
		s.db.Run(s.t, "UPDATE webhook_endpoints SET lease_until = now() WHERE lease_token IS NOT NULL") // as its minute does
	}
	s.worker = startProgram(t, "worker", s.env)
	s.awaitAll(n, "SENT")
	eventually(t, func() error {
		if events := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_events"); len(received.arrived()) != events {
			return fmt.Errorf("%d of %d events", len(received.arrived()), events)
		}
		return nil
	})
	received.mu.Lock()
	defer received.mu.Unlock()
	for _, fault := range received.faults {
		t.Error(fault)
	}
	last, again := map[string]int{}, 0
	for _, id := range received.ids {
		var seq int
		email, number, _ := strings.Cut(id, ".")
		if _, err := fmt.Sscan(number, &seq); err != nil || seq != last[email]+1 {
			t.Errorf("event %s after %d, %v", id, last[email], err)
		}
		last[email] = seq
		if received.times[id] > 1 {
			again++
		}
	}
	if again == 0 {
		t.Error("nothing came twice: the crash before the commit repeats its page")
	}
}

func (h *hook) arrived() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ids)
}
