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

// client makes requests to any of the apis.
type client struct {
	apis *balance.Balancer
	http *http.Client
}

func newClient(apis []string, seed uint64) *client {
	return &client{
		apis: balance.New(apis, seed),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: senders, IdleConnTimeout: 30 * time.Second}},
	}
}

// request is what the client sends.
type request struct {
	method, path string
	key          string // the tenant's
	idempotency  string
	contentType  string
	body         []byte
	patience     time.Duration // 0: balance.Patience
}

// answer is what came back.
type answer struct {
	status   int
	body     []byte
	replayed bool
}

// do makes one request. An error means that nobody knows what came of it.
func (c *client) do(ctx context.Context, r request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.patience, balance.Patience))
	defer cancel()
	api := c.apis.Pick()
	got, err := c.ask(ctx, api, r)
	c.apis.Note(api, errors.Is(err, context.DeadlineExceeded))
	return got, err
}

func (c *client) ask(ctx context.Context, api string, r request) (answer, error) {
	out, err := http.NewRequestWithContext(ctx, r.method, api+r.path, bytes.NewReader(r.body))
	if err != nil {
		return answer{}, err
	}
	out.Header.Set("Authorization", "Bearer "+r.key)
	if r.contentType != "" {
		out.Header.Set("Content-Type", r.contentType)
	}
	// net/http repeats a request with this header by itself when a connection turns out
	// to be dead, which is what a tenant's client does too.
	if r.idempotency != "" {
		out.Header.Set("Idempotency-Key", r.idempotency)
	}
	in, err := c.http.Do(out)
	if err != nil {
		return answer{}, err
	}
	defer in.Body.Close()
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return answer{}, fmt.Errorf("read answer: %w", err)
	}
	return answer{status: in.StatusCode, body: body, replayed: in.Header.Get("Idempotent-Replayed") == "true"}, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// repeatable says that the same request may be accepted later.
func repeatable(status int) bool {
	return status == http.StatusConflict || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

func read[T any](a answer) (T, error) {
	var out T
	if err := json.Unmarshal(a.body, &out); err != nil {
		return out, fmt.Errorf("read answer %.200q: %w", a.body, err)
	}
	return out, nil
}
