package neighbours

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"email-gateway/scripts/local"
)

// endpoint is a server for webhooks. It responds as respond says, and accepts without it.
type endpoint struct {
	*local.Server
	respond func(w http.ResponseWriter, r *http.Request)

	mu    sync.Mutex
	delay map[string]time.Duration // by email, of its event SENT: from the event to its arrival
}

func newEndpoint(respond func(w http.ResponseWriter, r *http.Request)) (*endpoint, error) {
	e := &endpoint{respond: respond, delay: make(map[string]time.Duration)}
	var err error
	e.Server, err = local.Serve("127.0.0.1:0", &http.Server{Handler: http.HandlerFunc(e.serve), ReadHeaderTimeout: requestTimeout})
	return e, err
}

func (e *endpoint) serve(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	body, err := io.ReadAll(r.Body) // only then does the server notice that the client closes the connection
	if err != nil {
		return
	}
	if e.respond != nil {
		e.respond(w, r)
		return
	}
	var event struct {
		Type      string
		Timestamp time.Time
		Data      struct{ OutboxID string }
	}
	if json.Unmarshal(body, &event) == nil && event.Type == "email.sent" {
		e.mu.Lock()
		defer e.mu.Unlock()
		if _, repeated := e.delay[event.Data.OutboxID]; !repeated {
			e.delay[event.Data.OutboxID] = max(arrived.Sub(event.Timestamp), 0)
		}
	}
}

// delayOf returns how long after it the event SENT of an email arrived.
func (e *endpoint) delayOf(email string) (d time.Duration, found bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d, found = e.delay[email]
	return d, found
}

// createWebhook creates an endpoint of the client's company.
func (c *client) createWebhook(ctx context.Context, url string, types ...string) error {
	got, err := c.do(ctx, request{method: http.MethodPost, path: "/v1/webhooks", body: encode(map[string]any{"url": url, "types": append([]string{}, types...)})})
	if err == nil && got.status != http.StatusCreated {
		err = fmt.Errorf("create webhook endpoint: %d %s", got.status, got.body)
	}
	return err
}
