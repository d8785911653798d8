package asynqueue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/redistest"
)

const user, password = "ops", "correct horse"

// secrets must not appear anywhere in the dashboard.
var secrets = []string{
	"ana.souza", "example.com", "copy@", "blind@", "answer@", "fatura", "Souza", "Padaria", "X-Secret", "s3cret",
	"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
}

func secretTask(t *testing.T, id string) queue.Task {
	t.Helper()
	payload, err := json.Marshal(email.SendJob{
		OutboxID: id, CompanyID: "company-1", RequestID: "req ana.souza@example.com", HTMLRef: id,
		To: "ana.souza@example.com", CC: []string{"copy@example.com"}, BCC: []string{"blind@example.com"}, ReplyTo: "answer@example.com",
		Subject: "Sua fatura, Ana", Headers: map[string]string{"X-Secret": "s3cret"}, Tags: []string{"to:ana.souza@example.com", "billing"},
		Recipient: email.JobRecipient{
			ExternalID: "ana.souza@example.com", Nome: "Ana Souza", RazaoSocial: "Padaria da Ana", Email: "ana.souza@example.com",
			CPFCNPJHash: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		},
		Attempt: 1, EnqueuedAt: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return queue.Task{ID: id, Queue: email.QueueNormal, Payload: payload}
}

// The page gets its tasks from an API, which is queried for each state of a task.
func TestMonitor_MasksPersonalData(t *testing.T) {
	t.Parallel()
	url, prefix := redistest.Shared(t)
	conn := parse(t, url).WithPrefix(prefix)
	publisher := asynqueue.NewPublisher(conn)
	t.Cleanup(func() { _ = publisher.Close() })

	working, release := make(chan string, 1), make(chan struct{})
	stop := consume(t, conn, func(_ context.Context, task queue.Task) error {
		switch task.ID {
		case "active":
			working <- task.ID
			<-release
			return nil
		case "retry":
			return &queue.RetryLater{Delay: time.Hour, Reason: "mailbox ana.souza@example.com is full"}
		}
		return &queue.Dead{Reason: "mailbox ana.souza@example.com is gone"}
	})
	for _, id := range []string{"active", "retry", "archived"} {
		if _, err := publisher.Publish(t.Context(), secretTask(t, id)); err != nil {
			t.Fatal(err)
		}
	}
	receive(t, working)
	base := asynqueue.MonitorPath + "/api/queues/" + prefix + email.QueueNormal
	monitor := newMonitor(t, asynqueue.MonitorConfig{Conn: conn, User: user, Password: password})
	for _, path := range []string{
		base + "/active_tasks", base + "/retry_tasks", base + "/archived_tasks",
		base + "/tasks/active", base + "/tasks/retry", base + "/tasks/archived",
	} {
		body := eventuallyShows(t, monitor, path, `"id":`)
		expectMasked(t, path, body)
	}
	// The worker's view of its own task appears with asynq's next heartbeat, after 5 s.
	servers := eventuallyShows(t, monitor, asynqueue.MonitorPath+"/api/servers", "a***@e***.com")
	if strings.Contains(servers, "ana.souza") {
		t.Errorf("servers: %s", servers)
	}
	close(release)
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	if _, err := publisher.Publish(t.Context(), secretTask(t, "pending")); err != nil {
		t.Fatal(err)
	}
	if _, err := publisher.Publish(t.Context(), queue.Task{ID: "broken", Queue: email.QueueNormal, Payload: []byte(`{"to":"ana.souza@example.com"`)}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{base + "/pending_tasks", base + "/tasks/pending", base + "/tasks/broken"} {
		expectMasked(t, path, eventuallyShows(t, monitor, path, `"id":`))
	}
}

func expectMasked(t *testing.T, path, body string) {
	t.Helper()
	for _, secret := range secrets {
		if strings.Contains(body, secret) {
			t.Errorf("%s shows %q: %s", path, secret, body)
		}
	}
}

func TestMonitor_Access(t *testing.T) {
	t.Parallel()
	url, prefix := redistest.Shared(t)
	conn := parse(t, url).WithPrefix(prefix)
	publisher := asynqueue.NewPublisher(conn)
	t.Cleanup(func() { _ = publisher.Close() })
	publish(t, publisher, "1")
	name := prefix + email.QueueNormal

	shut := newMonitor(t, asynqueue.MonitorConfig{Conn: conn})
	readOnly := newMonitor(t, asynqueue.MonitorConfig{Conn: conn, User: user, Password: password})
	writable := newMonitor(t, asynqueue.MonitorConfig{Conn: conn, User: user, Password: password, Writable: true})
	for _, test := range []struct {
		name           string
		monitor        *asynqueue.Monitor
		method, path   string
		user, password string
		origin         string
		want           int
	}{
		{"no password is set", shut, "GET", "", "", "", "", http.StatusForbidden},
		{"no password is set, an empty one given", shut, "GET", "/api/queues", "", "", "", http.StatusForbidden},
		{"no password given", readOnly, "GET", "", "", "", "", http.StatusUnauthorized},
		{"no password given to the API", readOnly, "GET", "/api/queues", "", "", "", http.StatusUnauthorized},
		{"wrong password", readOnly, "GET", "/api/queues", user, "correct horsf", "", http.StatusUnauthorized},
		{"wrong user", readOnly, "GET", "/api/queues", "op", password, "", http.StatusUnauthorized},
		{"the page", readOnly, "GET", "", user, password, "", http.StatusOK},
		{"the queue", readOnly, "GET", "/api/queues/" + name, user, password, "", http.StatusOK},
		{"pausing, read-only", readOnly, "POST", "/api/queues/" + name + ":pause", user, password, "", http.StatusMethodNotAllowed},
		{"pausing from another site", writable, "POST", "/api/queues/" + name + ":pause", user, password, "https://evil.example", http.StatusForbidden},
		{"archiving all", writable, "POST", "/api/queues/" + name + "/pending_tasks:archive_all", user, password, "", http.StatusMethodNotAllowed},
		{"pausing", writable, "POST", "/api/queues/" + name + ":pause", user, password, "", http.StatusNoContent},
	} {
		t.Run(test.name, func(t *testing.T) {
			request := httptest.NewRequestWithContext(t.Context(), test.method, asynqueue.MonitorPath+test.path, nil)
			if test.user+test.password != "" {
				request.SetBasicAuth(test.user, test.password)
			}
			if test.origin != "" {
				request.Header.Set("Origin", test.origin)
			}
			got := httptest.NewRecorder()
			test.monitor.ServeHTTP(got, request)
			if got.Code != test.want {
				t.Errorf("%s %s: %d, want %d: %s", test.method, test.path, got.Code, test.want, got.Body)
			}
			if got.Code == http.StatusForbidden && test.monitor == shut && !strings.Contains(got.Body.String(), "MONITORING_USER") {
				t.Errorf("no hint how to enable it: %s", got.Body)
			}
		})
	}
}

func newMonitor(t *testing.T, c asynqueue.MonitorConfig) *asynqueue.Monitor {
	t.Helper()
	monitor := asynqueue.NewMonitor(c)
	t.Cleanup(func() { _ = monitor.Close() })
	return monitor
}

// eventuallyShows polls until the response contains all of wanted (a path may show no tasks at
// first), and returns it.
func eventuallyShows(t *testing.T, monitor *asynqueue.Monitor, path string, wanted ...string) string {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		request.SetBasicAuth(user, password)
		recorder := httptest.NewRecorder()
		monitor.ServeHTTP(recorder, request)
		body, err := io.ReadAll(recorder.Body)
		if err != nil {
			t.Fatal(err)
		}
		missing := ""
		for _, want := range wanted {
			if !strings.Contains(string(body), want) {
				missing = want
			}
		}
		if missing == "" && recorder.Code == http.StatusOK {
			return string(body)
		}
		select {
		case <-deadline:
			t.Fatal(fmt.Errorf("%s: %d without %q: %s", path, recorder.Code, missing, body))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
