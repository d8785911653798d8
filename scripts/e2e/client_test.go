package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/waittest"
)

// emailView is the api's representation of an email.
type emailView struct {
	OutboxID          string
	Status            string
	Attempts          int
	Throttles         int
	PossibleDuplicate bool
	OutcomeUnknown    bool
	Delivery          string
	DeliveryAt        time.Time
	SESMessageID      string
	ErrorCode         string
	Events            []struct {
		Type      string
		CreatedAt time.Time
		Metadata  map[string]any
	}
}

func (e emailView) timeline() []string {
	types := make([]string, len(e.Events))
	for i, event := range e.Events {
		types[i] = event.Type
	}
	return types
}

// newBody is a valid request; change may be nil.
func newBody(to string, change func(map[string]any)) map[string]any {
	body := map[string]any{
		"to": to, "subject": "Sua fatura está disponível", "html": "<p>Olá, <b>João</b>: a fatura de março já saiu.</p>",
		"recipient": map[string]any{"externalId": "CUST-1", "email": to},
	}
	if change != nil {
		change(body)
	}
	return body
}

// httpClient keeps no idle connection for long: a server closes one on which no request has come within the time for the
// headers, and a POST on a connection that is being closed is not repeated. Concurrent requests make such connections.
var httpClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 2 * time.Second}}

// call makes one request with the system's key and returns status and body.
func (s *system) call(method, path string, body any, headers map[string]string) (int, []byte) {
	s.t.Helper()
	status, answer, err := s.try(method, path, body, headers)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return status, answer
}

func (s *system) try(method, path string, body any, headers map[string]string) (int, []byte, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.api.addr+path, bytes.NewReader(encoded))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.key)
	request.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// send posts an email and returns its id.
func (s *system) send(to string, change func(map[string]any)) string {
	s.t.Helper()
	status, answer := s.call(http.MethodPost, "/v1/email/send", newBody(to, change), nil)
	var accepted struct{ OutboxID string }
	if err := json.Unmarshal(answer, &accepted); err != nil || status != http.StatusAccepted {
		s.t.Fatalf("send to %s: %d %s", to, status, answer)
	}
	return accepted.OutboxID
}

func (s *system) email(id string) emailView {
	s.t.Helper()
	status, answer := s.call(http.MethodGet, "/v1/email/"+id, nil, nil)
	var view emailView
	if err := json.Unmarshal(answer, &view); err != nil || status != http.StatusOK {
		s.t.Fatalf("get %s: %d %s", id, status, answer)
	}
	return view
}

// await waits until the email has one of the statuses.
func (s *system) await(id string, statuses ...string) emailView {
	s.t.Helper()
	var last emailView
	eventually(s.t, func() error {
		if last = s.email(id); slices.Contains(statuses, last.Status) {
			return nil
		}
		return fmt.Errorf("email %s is %s after %v, want %v (%s)", id, last.Status, last.timeline(), statuses, last.ErrorCode)
	})
	return last
}

// sendTen sends ten emails one after the other, and waits for the provider's request of each.
func (s *system) sendTen() {
	s.t.Helper()
	for i := range 10 {
		id := s.send(fmt.Sprintf("um%d@cliente.example", i), nil)
		eventually(s.t, func() error {
			if len(s.ses.Requests(id)) == 0 {
				return fmt.Errorf("not sent: %s", s.statusCounts())
			}
			return nil
		})
	}
}

// awaitAll waits until n emails of the database have the status.
func (s *system) awaitAll(n int, status string) {
	s.t.Helper()
	eventually(s.t, func() error {
		var there int
		err := s.db.SQL.QueryRowContext(s.t.Context(), "SELECT count(*) FROM email_outbox WHERE status = $1", status).Scan(&there)
		if err == nil && there != n {
			err = fmt.Errorf("%d of %d emails are %s: %s", there, n, status, s.statusCounts())
		}
		return err
	})
}

// statusCounts lists the number of emails in each status.
func (s *system) statusCounts() string {
	var text string
	err := s.db.SQL.QueryRowContext(s.t.Context(),
		"SELECT string_agg(status || ' ' || n, ', ') FROM (SELECT status, count(*) n FROM email_outbox GROUP BY 1) x").Scan(&text)
	if err != nil {
		return err.Error()
	}
	return text
}

// sentOnce checks in the simulator's ledger that each of n emails was accepted exactly once.
func (s *system) sentOnce(n int) {
	s.t.Helper()
	summary := s.ses.Summary()
	if summary.Accepted != int64(n) || len(summary.Duplicates) > 0 {
		s.t.Errorf("SES accepted %d emails, %d of them more than once; want %d, each once", summary.Accepted, len(summary.Duplicates), n)
	}
}

// stallLimit is how long the result of a check may stay the same before the test fails. The slowest event is a task
// of a killed worker: asynq delivers it again after 2 minutes.
const stallLimit = 4 * time.Minute

// eventually repeats the check until it returns nil. It fails when the error has not changed for stallLimit: the
// total time depends on the machine.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	ends, limited := t.Deadline()
	ends = ends.Add(-time.Minute) // so that the test reports its last answer
	last, since := "", time.Now()
	for range waittest.Rounds() {
		err := check()
		if err == nil {
			return
		}
		now := time.Now()
		if text := err.Error(); text != last {
			last, since = text, now
		}
		if now.Sub(since) > stallLimit || limited && now.After(ends) {
			t.Fatalf("unchanged for %s: %v", now.Sub(since).Round(time.Second), err)
		}
	}
}

type simMail = sessim.Mail

func copyAll(w io.Writer, r io.Reader) (int64, error) { return io.Copy(w, r) }

// slowedBy returns the settings with every response delayed by that many milliseconds.
func slowedBy(settings sessim.Settings, ms int64) sessim.Settings {
	settings.LatencyMS = ms
	return settings
}

// awaitQuietQueues waits until Redis has no active or waiting task, so that everything the queue would deliver again
// has been delivered.
func (s *system) awaitQuietQueues() {
	s.t.Helper()
	client := s.redisClient()
	eventually(s.t, func() error {
		for _, queue := range []string{"email:send:high", "email:send", "email:send:low"} {
			for _, list := range []string{"pending", "active"} {
				if n := client.LLen(s.t.Context(), "asynq:{"+queue+"}:"+list).Val(); n > 0 {
					return fmt.Errorf("%d tasks of %s are %s", n, queue, list)
				}
			}
			if n := client.ZCard(s.t.Context(), "asynq:{"+queue+"}:retry").Val(); n > 0 {
				return fmt.Errorf("%d tasks of %s wait for a retry", n, queue)
			}
		}
		return nil
	})
}
