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

// answer is what a try gets: a response, or an error.
type answer struct {
	status     int
	retryAfter string
	body       string
	err        error
}

// answers is a transport that answers each request with the next one.
type answers []answer

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	next := (*a)[0]
	*a = (*a)[1:]
	if next.err != nil {
		return nil, next.err
	}
	return &http.Response{StatusCode: next.status, Header: http.Header{"Retry-After": {next.retryAfter}}, Body: io.NopCloser(strings.NewReader(next.body))}, nil
}

var (
	lost     = answer{err: io.ErrUnexpectedEOF}
	closed   = answer{err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
	accepted = answer{status: http.StatusAccepted, body: "{}"}
	refused  = answer{status: http.StatusForbidden, body: `{"code":"COMPANY_SUSPENDED","requestId":"r"}`}
	unknown  = answer{status: http.StatusServiceUnavailable, body: `{"code":"ACCEPT_UNKNOWN","requestId":"r"}`}
	invalid  = answer{status: http.StatusUnprocessableEntity, body: `{"code":"VALIDATION_FAILED","requestId":"r"}`}
	badProxy = answer{status: http.StatusBadGateway, body: "<html>"}
	latProxy = answer{status: http.StatusGatewayTimeout, body: "<html>"}
	envoy    = answer{status: http.StatusServiceUnavailable, body: "upstream connect error or disconnect/reset before headers. reset reason: connection termination"}
	cdn      = answer{status: 520, body: "<html>"}
	inUse    = answer{status: http.StatusConflict, retryAfter: "1", body: `{"code":"IDEMPOTENCY_IN_PROGRESS","requestId":"r"}`}
	exists   = answer{status: http.StatusConflict, body: `{"code":"FILENAME_EXISTS","requestId":"r"}`}
	overUsed = answer{status: http.StatusTooManyRequests, retryAfter: "1", body: `{"code":"QUOTA_EXCEEDED","requestId":"r"}`}
)

// The outcome of a request is unknown if any of its tries may have been processed, and such a request is repeated while
// the api restarts.
func TestPost_UnknownOutcome(t *testing.T) {
	t.Parallel()
	post := func(ctx context.Context, c *Client) error { return c.Post(ctx, "/v1/email/send", nil, nil, "key-1") }
	once := func(ctx context.Context, c *Client) error { return c.Post(ctx, "/v1/webhooks", nil, nil, "") }
	read := func(ctx context.Context, c *Client) error {
		return c.PostRead(ctx, "/v1/templates/t/preview", nil, nil)
	}
	get := func(ctx context.Context, c *Client) error { return c.Get(ctx, "/v1/emails", nil, nil) }
	for name, test := range map[string]struct {
		send    func(context.Context, *Client) error
		answers answers
		fails   bool
		unknown bool
		key     string
	}{
		"lost, closed, accepted": {post, answers{lost, closed, accepted}, false, false, ""},
		"lost, refused":          {post, answers{lost, refused}, true, true, "key-1"},
		"unknown":                {post, answers{unknown}, true, true, "key-1"},
		"a proxy, accepted":      {post, answers{badProxy, accepted}, false, false, ""},
		"a proxy, refused":       {post, answers{latProxy, refused}, true, true, "key-1"},
		"a proxy, not valid":     {post, answers{badProxy, invalid}, true, false, ""},
		"a preview, a proxy":     {read, answers{badProxy, refused}, true, false, ""},
		"without a key, lost":    {once, answers{lost}, true, true, ""},
		"without a key, a proxy": {once, answers{badProxy}, true, true, ""},
		"503 of a proxy":         {once, answers{envoy}, true, true, ""},
		"503, then accepted":     {post, answers{envoy, accepted}, false, false, ""},
		"520 of a proxy":         {post, answers{cdn}, true, true, "key-1"},
		"lost, in use, accepted": {post, answers{lost, inUse, accepted}, false, false, ""},
		"no Retry-After":         {post, answers{exists}, true, false, ""},
		"quota exceeded":         {post, answers{overUsed}, true, false, ""},
		"closed":                 {post, answers{closed}, true, false, ""},
		"refused":                {post, answers{refused}, true, false, ""},
		"a read, lost, refused":  {get, answers{lost, refused}, true, false, ""},
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
			var outcome *UnknownError
			if (err != nil) != test.fails || errors.As(err, &outcome) != test.unknown || len(left) != 0 {
				t.Fatalf("%v (%T), %d answers left", err, err, len(left))
			}
			if outcome != nil && outcome.IdempotencyKey != test.key {
				t.Errorf("key %q, want %q", outcome.IdempotencyKey, test.key)
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
	c.http.Transport = interrupting{cancel}
	var outcome *UnknownError
	if err := c.Post(ctx, "/v1/email/send", nil, nil, "key-1"); !errors.As(err, &outcome) || outcome.IdempotencyKey != "key-1" {
		t.Errorf("%v", err)
	}
}

// interrupting is a transport during whose request the user interrupts the command.
type interrupting struct{ interrupt func() }

func (i interrupting) RoundTrip(*http.Request) (*http.Response, error) {
	i.interrupt()
	return nil, io.ErrUnexpectedEOF
}
