package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// answers is a transport that answers each request with the next of its results.
type answers []func() (*http.Response, error)

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	next := (*a)[0]
	*a = (*a)[1:]
	return next()
}

func lost() (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

func closed() (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
}

func status(code int, body string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

// The outcome of a request is unknown if any of its tries may have been processed, and such a request is repeated while
// the api restarts.
func TestPost_UnknownOutcome(t *testing.T) {
	t.Parallel()
	post := func(ctx context.Context, c *Client) error { return c.Post(ctx, "/v1/email/send", nil, nil, "key-1") }
	once := func(ctx context.Context, c *Client) error { return c.Post(ctx, "/v1/webhooks", nil, nil, "") }
	get := func(ctx context.Context, c *Client) error { return c.Get(ctx, "/v1/emails", nil, nil) }
	refusal := status(http.StatusForbidden, `{"code":"COMPANY_SUSPENDED","requestId":"r"}`)
	for name, test := range map[string]struct {
		send    func(context.Context, *Client) error
		answers answers
		fails   bool
		unknown bool
		key     string
	}{
		"lost, closed, accepted": {post, answers{lost, closed, status(http.StatusAccepted, "{}")}, false, false, ""},
		"lost, refused":          {post, answers{lost, refusal}, true, true, "key-1"},
		"unknown, refused":       {post, answers{status(http.StatusServiceUnavailable, `{"code":"ACCEPT_UNKNOWN","requestId":"r"}`)}, true, true, "key-1"},
		"a proxy, accepted":      {post, answers{status(http.StatusBadGateway, "<html>"), status(http.StatusAccepted, "{}")}, false, false, ""},
		"a proxy, refused":       {post, answers{status(http.StatusGatewayTimeout, "<html>"), refusal}, true, true, "key-1"},
		"without a key, lost":    {once, answers{lost}, true, true, ""},
		"without a key, a proxy": {once, answers{status(http.StatusBadGateway, "<html>")}, true, true, ""},
		"closed":                 {post, answers{closed}, true, false, ""},
		"refused":                {post, answers{refusal}, true, false, ""},
		"a read, lost, refused":  {get, answers{lost, refusal}, true, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := New("http://api.example", "gw_test_a_b")
			if err != nil {
				t.Fatal(err)
			}
			left := test.answers
			c.http.Transport = &left
			err = test.send(t.Context(), c)
			var unknown *UnknownError
			if (err != nil) != test.fails || errors.As(err, &unknown) != test.unknown || len(left) != 0 {
				t.Fatalf("%v (%T), %d answers left", err, err, len(left))
			}
			if unknown != nil && unknown.Once != test.key {
				t.Errorf("key %q, want %q", unknown.Once, test.key)
			}
		})
	}
}

// A request that was interrupted after an earlier try may have been processed.
func TestPost_Interrupted(t *testing.T) {
	t.Parallel()
	c, err := New("http://api.example", "gw_test_a_b")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.http.Transport = &answers{func() (*http.Response, error) {
		cancel()
		return lost()
	}}
	var unknown *UnknownError
	if err := c.Post(ctx, "/v1/email/send", nil, nil, "key-1"); !errors.As(err, &unknown) || unknown.Once != "key-1" {
		t.Errorf("%v", err)
	}
}
