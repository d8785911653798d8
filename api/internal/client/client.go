// Package client calls the gateway's HTTP API for one company. gatewayctl uses it for tenant
// commands. It decodes responses only into the caller's types, so that the output follows the
// API.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// answerTime limits a response: the api waits up to a minute for a slot and ends a request
	// after that. Uploads have no such limit, because the api reads the file again before it
	// answers.
	answerTime = 2 * time.Minute
	// healthTime is longer than the api's own timeouts for its dependencies.
	healthTime = 10 * time.Second
	// maxAnswer limits a response other than a download (bytes).
	maxAnswer = 64 << 20
	// retryTimeout limits how long a request is retried automatically.
	retryTimeout = time.Minute
)

// Client calls one api with one key.
type Client struct {
	base *url.URL
	key  string
	http *http.Client
}

// New returns a client for the api at address, an http:// or https:// URL.
func New(address, key string) (*Client, error) {
	base, err := url.Parse(strings.TrimRight(address, "/"))
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" {
		return nil, errors.New("must be an http:// or https:// URL without credentials and query, such as https://mail.acme.example")
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second,
		ForceAttemptHTTP2:   true,
		IdleConnTimeout:     30 * time.Second,
		// An invalid key is rejected before half a gigabyte is sent.
		ExpectContinueTimeout: 2 * time.Second,
	}
	return &Client{base: base, key: key, http: &http.Client{
		Transport: transport,
		// A redirect would send the key to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close closes the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get requests a path, which begins with a slash, and decodes the response into out.
func (c *Client) Get(ctx context.Context, path string, query url.Values, out any) error {
	return c.call(ctx, request{method: http.MethodGet, path: path, query: query, repeatable: true, reads: true}, out)
}

// Health requests /health and decodes the response into out, also if the api is unhealthy and
// answers 503. It needs no key.
func (c *Client) Health(ctx context.Context, out any) error {
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.JoinPath("/health").String(), nil)
	if err != nil {
		return fmt.Errorf("build request: %w", err)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return unreachable(c.base.String(), err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusServiceUnavailable {
		return readProblem(answer)
	}
	return read(answer, out)
}

// Post sends in as JSON, or no body if it is nil, and decodes the response into out. once is an
// Idempotency-Key, or ""; with one, the request is retried automatically if it was rejected or there is no
// response. Without one it is never sent again.
func (c *Client) Post(ctx context.Context, path string, in, out any, once string) error {
	return c.post(ctx, request{path: path, once: once, repeatable: once != ""}, in, out)
}

// PostStep posts to a path that takes a step of an object, such as pausing a mailing, and decodes the response into out. The
// api refuses a step that it has taken already, so the request is retried automatically after 429 and a 409 with Retry-After,
// but not if there is no response: the answer would then be the refusal.
func (c *Client) PostStep(ctx context.Context, path string, out any) error {
	return c.post(ctx, request{path: path, guarded: true}, nil, out)
}

// PostQuery is Post with a query.
func (c *Client) PostQuery(ctx context.Context, path string, query url.Values, in, out any, once string) error {
	return c.post(ctx, request{path: path, query: query, once: once, repeatable: once != ""}, in, out)
}

// PostAgain is Post for idempotent requests: it is retried automatically if there is no
// response.
func (c *Client) PostAgain(ctx context.Context, path string, in, out any) error {
	return c.post(ctx, request{path: path, repeatable: true}, in, out)
}

// PostRead is PostAgain for requests that change nothing, such as a preview.
func (c *Client) PostRead(ctx context.Context, path string, in, out any) error {
	return c.post(ctx, request{path: path, repeatable: true, reads: true}, in, out)
}

func (c *Client) post(ctx context.Context, r request, in, out any) error {
	r.method = http.MethodPost
	if in != nil {
		body, err := Encode(in)
		if err != nil {
			return err
		}
		r.body = body
	}
	return c.call(ctx, r, out)
}

// Patch sends in as JSON and decodes the response into out. It is retried automatically if
// there is no response.
func (c *Client) Patch(ctx context.Context, path string, in, out any) error {
	body, err := Encode(in)
	if err != nil {
		return err
	}
	return c.call(ctx, request{method: http.MethodPatch, path: path, body: body, repeatable: true}, out)
}

// Delete sends a DELETE request. It is retried as that of PostStep.
func (c *Client) Delete(ctx context.Context, path string, query url.Values) error {
	return c.call(ctx, request{method: http.MethodDelete, path: path, query: query, guarded: true}, nil)
}

// request is a request whose body is small enough to be sent again.
type request struct {
	method, path string
	query        url.Values
	body         []byte // JSON; nil = none
	once         string
	repeatable   bool // idempotent
	guarded      bool // a second run is refused: it changes nothing that the first one has changed
	reads        bool // it changes nothing
}

// call sends a repeatable request until there is a response of the api. For up to a minute it retries any refusal with
// Retry-After, 429 without it, and a proxy's 502, 503 and 504, but not if a quota is exceeded. A guarded request is
// retried only after such a refusal with a status below 500, when the api has processed nothing. A request that makes
// something new on each run is never retried. The error is an UnknownError if any try may have been processed, not only
// the last one.
func (c *Client) call(ctx context.Context, r request, out any) error {
	start, unknown := time.Now(), false
	for {
		err := c.try(ctx, r, out)
		unknown = err != nil && (unknown || mayBeProcessed(err)) && !r.isRefused(err)
		pause, again := r.pause(err, unknown)
		again = again && time.Since(start)+pause <= retryTimeout
		if again {
			select {
			case <-ctx.Done():
				again = false
			case <-time.After(pause):
			}
		}
		switch {
		case again:
		case unknown && !r.reads:
			return &UnknownError{IdempotencyKey: r.once, err: err}
		default:
			return err
		}
	}
}

// isRefused reports whether the error shows that nothing was processed under the request's key: the api looks the key up
// before it gives these answers.
func (r request) isRefused(err error) bool {
	var refused *Problem
	return r.once != "" && errors.As(err, &refused) && (refused.Status == http.StatusUnprocessableEntity || refused.Code == "QUOTA_EXCEEDED")
}

// pause returns whether and when the request may be retried after the error. If an earlier try may have been processed,
// it is also retried while the api's port is closed, because the api may be restarting.
func (r request) pause(err error, unknown bool) (time.Duration, bool) {
	var refused *Problem
	var silent *UnreachableError
	switch {
	case errors.As(err, &refused) && refused.passes() && (r.repeatable || r.guarded && refused.Status < http.StatusInternalServerError):
		return max(refused.RetryAfter, time.Second), true
	case errors.As(err, &silent) && r.repeatable && (silent.Began || unknown):
		return time.Second, true
	}
	return 0, false
}

func (c *Client) try(ctx context.Context, r request, out any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var body io.Reader
	header := http.Header{}
	if r.body != nil {
		body = bytes.NewReader(r.body)
		header.Set("Content-Type", "application/json")
	}
	if r.once != "" {
		header.Set("Idempotency-Key", r.once)
	}
	answer, err := c.send(ctx, r.method, r.path, r.query, header, body, -1)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return read(answer, out)
}

// send sends one request and returns a response that is not a problem.
func (c *Client) send(
	ctx context.Context, method, path string, query url.Values, header http.Header, body io.Reader, length int64,
) (*http.Response, error) {
	target := c.base.JoinPath(path)
	target.RawQuery = query.Encode()
	out, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return nil, fmt.Errorf("build request: %w", err)
	}
	if length >= 0 {
		out.ContentLength = length
	}
	out.Header = header
	out.Header.Set("Authorization", "Bearer "+c.key)
	out.Header.Set("User-Agent", "gatewayctl")
	// The transport itself repeats a request with an Idempotency-Key if a connection that was open already fails, and then
	// returns only the last error.
	var wrote atomic.Bool
	out = out.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }}))
	answer, err := c.http.Do(out)
	if err != nil {
		lost := unreachable(c.base.String(), err)
		lost.Began = lost.Began || wrote.Load()
		return nil, lost
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		defer answer.Body.Close()
		return nil, readProblem(answer)
	}
	return answer, nil
}

func read(answer *http.Response, out any) error {
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return unreachable(answer.Request.URL.Host, fmt.Errorf("read answer: %w", err))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s did not send a response of the gateway: check API_URL: %w", answer.Request.URL.Redacted(), err)
	}
	return nil
}

// retryAfter returns the seconds of the Retry-After header, 0 without one.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
