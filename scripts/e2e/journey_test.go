package e2e_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The main path: one request, a 202, and SENT within a second with the complete timeline.
func TestJourney(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	warm := s.send("warm@example.com", nil) // the first email opens every connection
	s.await(warm, "SENT")

	start := time.Now()
	id := s.send("maria@cliente.example", func(b map[string]any) {
		b["text"] = "Olá, João"
		b["cc"] = []string{"cópias@financeiro.example"}[:0]
		b["headers"] = map[string]string{"X-Pedido": "42"}
		b["recipient"] = map[string]any{"cpfCnpj": "529.982.247-25", "nome": "João Açúcar", "email": "maria@cliente.example"}
	})
	got := s.await(id, "SENT")
	t.Logf("accepted to seen as SENT in %s", time.Since(start))

	if want := []string{"RECEIVED", "VALIDATED", "SENT_ATTEMPT", "SENT"}; !slices.Equal(got.timeline(), want) {
		t.Errorf("timeline = %v, want %v", got.timeline(), want)
	}
	if got.SESMessageID == "" || got.Attempts != 1 {
		t.Errorf("email = %+v, want one attempt and the SES id", got)
	}
	if sent := got.Events[3].Metadata; sent["sesMessageId"] != got.SESMessageID || sent["attempt"] != float64(1) || sent["durationMs"] == nil {
		t.Errorf("SENT event contains %v", sent)
	}

	mails := s.ses.Inbox()
	i := slices.IndexFunc(mails, func(m simMail) bool { return m.OutboxID == id })
	if i < 0 {
		t.Fatal("the mail is not in the inbox")
	}
	mail := mails[i]
	if mail.Subject != "Sua fatura está disponível" || !strings.Contains(mail.HTML, "março") || mail.Text != "Olá, João" {
		t.Errorf("accents were lost on the way: %q %q %q", mail.Subject, mail.HTML, mail.Text)
	}
	s.checkNothingPersonalLeaks(t, id)
}

// checkNothingPersonalLeaks searches for the CPF and the address where they must not be.
func (s *system) checkNothingPersonalLeaks(t *testing.T, id string) {
	t.Helper()
	for _, p := range []*program{s.api, s.dispatcher, s.worker} {
		for _, secret := range []string{"52998224725", "529.982.247-25", "maria@cliente.example", "João", s.key[len(s.key)-20:]} {
			if strings.Contains(p.logged(), secret) {
				t.Errorf("the log of %s holds %q", p.name, secret)
			}
		}
	}
	if !strings.Contains(s.worker.logged(), id) || !strings.Contains(s.worker.logged(), "m***@c***.example") {
		t.Error("the worker's log does not contain the masked address")
	}
	rows, err := s.db.SQL.QueryContext(t.Context(), `SELECT row_to_json(o)::text FROM email_outbox o UNION ALL
		SELECT row_to_json(l)::text FROM email_logs l UNION ALL SELECT row_to_json(e)::text FROM email_events e UNION ALL
		SELECT row_to_json(r)::text FROM recipients r`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var row string
		if err := rows.Scan(&row); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(row, "52998224725") || strings.Contains(row, "529.982") {
			t.Errorf("a row holds the CPF in clear: %s", row)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestMonitoring(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	s.await(s.send("maria@cliente.example", nil), "SENT")

	get := func(path, user, password string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.worker.addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			request.SetBasicAuth(user, password)
		}
		response, err := httpClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		var body strings.Builder
		if _, err := copyAll(&body, response.Body); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, body.String()
	}
	if status, _ := get("/monitoring/", "", ""); status != http.StatusUnauthorized {
		t.Errorf("without a password: %d, want 401", status)
	}
	if status, _ := get("/monitoring/", "ops", "wrong"); status != http.StatusUnauthorized {
		t.Errorf("with a wrong password: %d, want 401", status)
	}
	status, body := get("/monitoring/api/queues", "ops", "night-shift")
	var queues struct{ Queues []struct{ Queue string } }
	if err := json.Unmarshal([]byte(body), &queues); err != nil || status != http.StatusOK {
		t.Fatalf("queues: %d %s", status, body)
	}
	var names []string
	for _, q := range queues.Queues {
		names = append(names, q.Queue)
	}
	slices.Sort(names)
	if want := []string{"email:send", "email:send:high", "email:send:low"}; !slices.Equal(names, want) {
		t.Errorf("queues = %v, want %v", names, want)
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		if status, body := get(path, "", ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	eventually(t, func() error { // counted after the commit that the email's status came with
		if _, metrics := get("/metrics", "", ""); !strings.Contains(metrics, `pipeline_final_state_total{state="SENT"} 1`) {
			return errors.New("the metrics do not count the email")
		}
		return nil
	})
}

// Fifty concurrent requests with one Idempotency-Key: one row, one response, one email.
func TestIdempotency(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	key := map[string]string{"Idempotency-Key": "invoice-2026-11-0042"}
	answers := make([]string, 50)
	start := make(chan struct{})
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() {
			<-start
			// A client repeats a request that was answered 409 because another one with its key is in progress.
			eventually(t, func() error {
				status, body, err := s.try(http.MethodPost, "/v1/email/send", newBody("ana@example.com", nil), key)
				answers[i] = string(body)
				if status == http.StatusConflict && strings.Contains(answers[i], "IDEMPOTENCY_IN_PROGRESS") {
					return errors.New(answers[i])
				}
				if err != nil || status != http.StatusAccepted {
					t.Errorf("request %d: %d %s %v", i, status, body, err)
				}
				return nil
			})
		})
	}
	close(start)
	group.Wait()
	if distinct := slices.Compact(slices.Sorted(slices.Values(answers))); len(distinct) != 1 {
		t.Errorf("%d different answers, want one: %v", len(distinct), distinct)
	}
	s.awaitAll(1, "SENT")
	s.sentOnce(1)

	status, body := s.call(http.MethodPost, "/v1/email/send", newBody("bea@example.com", nil), key)
	if status != http.StatusUnprocessableEntity || !strings.Contains(string(body), "IDEMPOTENCY_KEY_REUSED") {
		t.Errorf("another body under the same key: %d %s, want 422", status, body)
	}
}
