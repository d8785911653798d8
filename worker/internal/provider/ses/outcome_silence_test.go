package ses_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/smithy-go"

	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/provider/ses"
)

// silent: no response. Without a connection nothing was sent.
func silent() []outcome {
	network := outage(retries("NETWORK_ERROR", provider.TransientError))
	late := outage(retries("SES_TIMEOUT", provider.TimeoutError))
	lost := unknown("NETWORK_ERROR", provider.TransientError)
	unspent := &provider.Failure{Outcome: provider.Unspent, Code: "SEND_CANCELLED", Category: provider.TransientError}
	mayBe := unknown("SES_TIMEOUT", provider.TimeoutError)
	return []outcome{
		{name: "no such host", at: closed, want: network, config: func(c *ses.Config) {
			*c = c.WithDialer(func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "ses.invalid", IsNotFound: true}}
			})
		}},
		{name: "connection refused", at: closed, want: network},
		{name: "dial timeout", at: closed, want: late, config: func(c *ses.Config) { c.ConnectTimeout = time.Nanosecond }},
		{name: "TLS handshake timeout", at: mute, want: late, config: func(c *ses.Config) { c.ConnectTimeout = 50 * time.Millisecond }},
		{name: "TLS handshake cut off", want: network, at: func(t *testing.T) endpoint {
			e := closed(t)
			e.url = "https://" + listen(t, func(net.Conn) {})
			return e
		}},
		{name: "certificate not trusted", at: untrusted, want: parks("SES_TLS_ERROR")},
		{name: "plain HTTP behind an https address", want: parks("SES_ENDPOINT_INVALID"), at: func(t *testing.T) endpoint {
			e := says(200, `{"MessageId":"0100-a"}`)(t)
			e.url = "https" + e.url[len("http"):]
			return e
		}},

		{name: "closed after the request", at: reads(func(net.Conn) {}), want: lost, requests: 1},
		{name: "reset after the request", at: reads(reset), want: lost, requests: 1},
		{name: "closed at the first byte", want: lost, at: func(t *testing.T) endpoint {
			e := closed(t)
			e.url = "http://" + listen(t, func(c net.Conn) { c.Read(make([]byte, 1)) })
			return e
		}},
		{name: "an answer that is not HTTP", at: reads(func(c net.Conn) { c.Write([]byte("220 mail.example ESMTP\r\n")) }), want: lost, requests: 1},
		// A request that was not sent as a whole was not accepted. The server's and the client's buffers are smaller than it.
		{name: "closed within the request", at: partly(func(net.Conn) {}), html: large, want: incomplete(retries("NETWORK_ERROR", provider.TransientError)), requests: 1},
		{name: "reset within the request", at: partly(reset), html: large, want: incomplete(retries("NETWORK_ERROR", provider.TransientError)), requests: 1},
		{
			name: "deadline within the request", at: partly(nil), html: large, want: incomplete(retries("SES_TIMEOUT", provider.TimeoutError)), requests: 1,
			context: func(t *testing.T, e endpoint) context.Context {
				return lateContext{cancelWhen(t, func() bool { return e.seen.Load() > 0 })}
			},
		},
		{
			name: "cancelled within the request", at: partly(nil), html: large, want: unspent, requests: 1,
			context: func(t *testing.T, e endpoint) context.Context {
				return cancelWhen(t, func() bool { return e.seen.Load() > 0 })
			},
		},
		{
			name: "refused within the request", html: large, want: incomplete(retries("SES_INTERNAL_ERROR", provider.TransientError)), requests: 1,
			at: func(t *testing.T) endpoint {
				return partly(func(c net.Conn) {
					io.WriteString(c, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")
					<-t.Context().Done()
				})(t)
			},
		},
		{
			name: "suspended machine within the request", html: large, want: unspent, requests: 1,
			at: partly(func(c net.Conn) {
				_ = c.(*net.TCPConn).SetReadBuffer(1 << 20)
				io.Copy(io.Discard, c)
			}),
			context: func(t *testing.T, e endpoint) context.Context { return suspendedLater{t.Context(), e.seen} },
		},
		{name: "closed after a large request", at: reads(func(net.Conn) {}), html: large, want: lost, requests: 1},
		{name: "large, no connection", at: closed, html: large, want: network},
		{
			name: "no answer in time", at: reads(hang), want: mayBe, requests: 1,
			config: func(c *ses.Config) { c.ResponseTimeout = 50 * time.Millisecond },
		},
		{
			name: "deadline before the answer", at: reads(hang), want: mayBe, requests: 1,
			context: func(t *testing.T, e endpoint) context.Context {
				return lateContext{cancelWhen(t, func() bool { return e.seen.Load() > 0 })}
			},
		},
		{
			name: "call timeout before the connection", at: mute, want: late,
			config: func(c *ses.Config) { c.CallTimeout = 50 * time.Millisecond },
		},
		{
			name: "deadline passed before the call", at: closed, want: late,
			context: func(t *testing.T, _ endpoint) context.Context {
				ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
				t.Cleanup(cancel)
				return ctx
			},
		},
		{
			name: "cancelled after the connection", at: reads(hang), requests: 1,
			context: func(t *testing.T, e endpoint) context.Context {
				return cancelWhen(t, func() bool { return e.seen.Load() > 0 })
			},
			want: unknown("SEND_CANCELLED", provider.TransientError),
		},
		{
			name: "cancelled before the connection", at: closed,
			context: func(t *testing.T, _ endpoint) context.Context {
				return cancelWhen(t, func() bool { return true })
			},
			config: func(c *ses.Config) {
				*c = c.WithDialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				})
			},
			want: unspent,
		},
		{
			name: "suspended machine before the connection", at: says(200, `{"MessageId":"0100-a"}`), want: unspent,
			context: func(t *testing.T, _ endpoint) context.Context { return suspendedContext{t.Context()} },
			config: func(c *ses.Config) {
				*c = c.WithDialer(func(_ context.Context, network, address string) (net.Conn, error) { return net.Dial(network, address) })
			},
		},
	}
}

// large is more than the socket buffers of a connection take.
const large = 16 << 20

// suspendedLater is a suspendedContext from the time when the server has seen a part of the request.
type suspendedLater struct {
	context.Context
	seen *atomic.Int32
}

func (c suspendedLater) Deadline() (time.Time, bool) {
	if c.seen.Load() == 0 {
		return time.Now().Add(5 * time.Second), true // earlier than that of the call
	}
	return suspendedContext{}.Deadline()
}

// suspendedContext is the context of a call during which the machine was suspended: the wall clock is beyond its deadline, which
// the monotonic clock has not reached.
type suspendedContext struct{ context.Context }

func (suspendedContext) Deadline() (time.Time, bool) {
	return time.Now().Add(-time.Second).Round(0), true
}

// local: errors of the SDK itself. New rejects the settings that cause the first one, and a message
// always has its required parts, so no test server can cause them.
func local() []outcome {
	return []outcome{
		{name: "no region", want: parks("SES_ENDPOINT_INVALID"), err: &smithy.OperationError{
			ServiceID: "SESv2", OperationName: "SendEmail",
			Err: fmt.Errorf("failed to resolve service endpoint, %w", errors.New("endpoint rule error, Invalid Configuration: Missing Region")),
		}},
		{name: "required member missing", want: failed("SES_INVALID_REQUEST", provider.ValidationError), err: &smithy.OperationError{
			ServiceID: "SESv2", OperationName: "SendEmail", Err: missingContent(),
		}},
	}
}

func missingContent() error {
	missing := smithy.InvalidParamsError{Context: "SendEmailInput"}
	missing.Add(smithy.NewErrParamRequired("Content"))
	return missing
}

// cancelWhen returns a context that is cancelled when the condition holds.
func cancelWhen(t *testing.T, holds func() bool) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	tick := time.NewTicker(time.Millisecond)
	go func() {
		defer tick.Stop()
		defer cancel()
		for !holds() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx
}

// lateContext turns a cancellation into a deadline, so that it can pass at a known moment.
type lateContext struct{ context.Context }

func (c lateContext) Err() error {
	if c.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// Value hides the cancelled context from contexts derived from this one.
func (lateContext) Value(any) any { return nil }
