// Package client speaks the gateway's HTTP API on behalf of one company. gatewayctl
// uses it for what tenants may do; it knows routes and answers only as bytes, so that
// what is printed is what the contract says.
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
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// answerTime is how long an answer may take: the api waits up to a minute for a turn,
	// and ends a request after that. An upload has no such limit, because the api itself
	// reads the file once more before it answers.
	answerTime = 2 * time.Minute
	// healthTime is longer than the api itself waits for a dependency.
	healthTime = 10 * time.Second
	// maxAnswer is more than any answer but a list of verdicts holds (bytes).
	maxAnswer = 64 << 20
	// patience is how long a request that was told to come back later does so by itself.
	patience = time.Minute
)

// Client makes requests to one api with one key.
type Client struct {
	base *url.URL
	key  string
	http *http.Client
}

// New makes a client of the api at address, an http:// or https:// URL.
func New(address, key string) (*Client, error) {
	base, err := url.Parse(strings.TrimRight(address, "/"))
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" {
		return nil, errors.New("must be an http:// or https:// URL without a password and a query, such as https://mail.acme.example")
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second,
		ForceAttemptHTTP2:   true,
		IdleConnTimeout:     30 * time.Second,
		// A key that is not valid is told before half a gigabyte is on its way.
		ExpectContinueTimeout: 2 * time.Second,
	}
	return &Client{base: base, key: key, http: &http.Client{
		Transport: transport,
		// A redirect would carry the key to wherever it leads.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close ends the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get asks for a path, which begins with a slash, and reads the answer into out.
func (c *Client) Get(ctx context.Context, path string, query url.Values, out any) error {
	return c.call(ctx, request{method: http.MethodGet, path: path, query: query, repeatable: true}, out)
}

// Health asks the api how it is, and reads that into out: it answers 503 when it is not
// well. It needs no key.
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

// Post sends in as JSON, or nothing if it is nil, and reads the answer into out. once is
// an Idempotency-Key, or "": with one, the request is repeated by itself when it was not
// answered.
func (c *Client) Post(ctx context.Context, path string, in, out any, once string) error {
	return c.post(ctx, request{path: path, once: once, repeatable: once != ""}, in, out)
}

// PostAgain is Post for what does no harm when it is done twice: it is repeated by itself
// when it was not answered.
func (c *Client) PostAgain(ctx context.Context, path string, in, out any) error {
	return c.post(ctx, request{path: path, repeatable: true}, in, out)
}

func (c *Client) post(ctx context.Context, r request, in, out any) error {
	r.method = http.MethodPost
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		r.body = body
	}
	return c.call(ctx, r, out)
}

// Patch changes what the path names to what in says, as JSON, and reads the answer into out. It
// is repeated by itself when it was not answered.
func (c *Client) Patch(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	return c.call(ctx, request{method: http.MethodPatch, path: path, body: body, repeatable: true}, out)
}

// Delete takes away what path and query name.
func (c *Client) Delete(ctx context.Context, path string, query url.Values) error {
	return c.call(ctx, request{method: http.MethodDelete, path: path, query: query}, nil)
}

// request is one whose body is small enough to be sent again.
type request struct {
	method, path string
	query        url.Values
	body         []byte // JSON; nil = none
	once         string
	repeatable   bool // however often it is carried out, it is carried out once
}

// call makes the request until it is answered. One that the api turned away unheard
// (429, or 503 with Retry-After) is made again when it said, for up to a minute; not one
// that exceeds a quota.
func (c *Client) call(ctx context.Context, r request, out any) error {
	began := time.Now()
	for {
		err := c.try(ctx, r, out)
		pause, again := r.pause(err)
		if !again || time.Since(began)+pause > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// pause says whether the request may be made again after the error, and when.
func (r request) pause(err error) (time.Duration, bool) {
	var refused *Problem
	var silent *UnreachableError
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusTooManyRequests && refused.Code != "QUOTA_EXCEEDED",
		errors.As(err, &refused) && r.repeatable && refused.Status == http.StatusServiceUnavailable && refused.RetryAfter > 0:
		return max(refused.RetryAfter, time.Second), true
	case errors.As(err, &silent) && r.repeatable && silent.Began:
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

// send makes one request and returns an answer that is not a problem.
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
	answer, err := c.http.Do(out)
	if err != nil {
		return nil, unreachable(c.base.String(), err)
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
		return fmt.Errorf("%s answered what is not the gateway's: is API_URL right? %w", answer.Request.URL.Redacted(), err)
	}
	return nil
}

// retryAfter is the header's seconds, 0 without one.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
