package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"email-gateway/scripts/chaos/balance"
)

// client sends requests to the apis.
type client struct {
	apis   *balance.Balancer
	http   *http.Client
	failed func(complaint string) // records a 500, which no fault may cause
}

func newClient(apis []string, seed uint64, failed func(complaint string)) *client {
	return &client{
		apis: balance.New(apis, seed), failed: failed,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: senders + maxPersons + maxQuiet + maxAttached + maxBatches, IdleConnTimeout: 30 * time.Second}},
	}
}

// request is an HTTP request of a tenant.
type request struct {
	method, path string
	key          string // the tenant's
	idempotency  string
	contentType  string
	body         []byte
	timeout      time.Duration // 0: balance.Timeout
}

// response is the response to a request.
type response struct {
	status   int
	body     []byte
	replayed bool
}

// do sends one request. An error means that its outcome is unknown.
func (c *client) do(ctx context.Context, r request) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.timeout, balance.Timeout))
	defer cancel()
	api := c.apis.Pick()
	got, err := c.ask(ctx, api, r)
	c.apis.Note(api, errors.Is(err, context.DeadlineExceeded))
	return got, err
}

func (c *client) ask(ctx context.Context, api string, r request) (response, error) {
	out, err := http.NewRequestWithContext(ctx, r.method, api+r.path, bytes.NewReader(r.body))
	if err != nil {
		return response{}, err
	}
	out.Header.Set("Authorization", "Bearer "+r.key)
	if r.contentType != "" {
		out.Header.Set("Content-Type", r.contentType)
	}
	// net/http retries a request with this header when a connection turns out to be dead, as a
	// tenant's client does.
	if r.idempotency != "" {
		out.Header.Set("Idempotency-Key", r.idempotency)
	}
	in, err := c.http.Do(out)
	if err != nil {
		return response{}, err
	}
	defer in.Body.Close()
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return response{}, fmt.Errorf("read response: %w", err)
	}
	if in.StatusCode == http.StatusInternalServerError {
		c.failed(fmt.Sprintf("%s %s: %s", r.method, r.path, unexpectedResponse(in.StatusCode, body)))
	}
	return response{status: in.StatusCode, body: body, replayed: in.Header.Get("Idempotent-Replayed") == "true"}, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// retryable reports whether the same request may be accepted later. A 409 says so by its code: another request or transaction is
// in progress. A 500 is recorded as a refusal, and the run continues.
func (a response) retryable() bool {
	switch a.status {
	case http.StatusConflict:
		return bytes.Contains(a.body, []byte(`_IN_PROGRESS"`)) || bytes.Contains(a.body, []byte(`_BUSY"`))
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable:
		return true
	}
	return false
}

func read[T any](a response) (T, error) {
	var out T
	if err := json.Unmarshal(a.body, &out); err != nil {
		return out, fmt.Errorf("read response %.200q: %w", a.body, err)
	}
	return out, nil
}
