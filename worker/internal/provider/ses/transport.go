package ses

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// transport is the SDK's HTTP client. It differs from a usual client in three ways:
//
//   - No redirects. A client follows 307 and 308 by sending the POST again to the new
//     address; the round trip below returns the redirect to the classifier.
//   - No HTTP/2. It would use one connection for all calls, so that one reset makes all
//     outcomes unknown, and the pool would not match the concurrency.
//   - No replays. net/http resends a request only if the reused connection failed before
//     a byte was written and the body can be rewound; the SDK provides no way to rewind,
//     so it never happens. Even if it did, nothing would be sent twice, because nothing
//     was written. Written requests are replayed only with an Idempotency-Key header (or
//     an idempotent method): never set that header.
type transport struct{ http *http.Transport }

// newTransport is based on the client the SDK was configured with, because that one trusts the
// certificates of AWS_CA_BUNDLE.
func newTransport(configured aws.HTTPClient, c Config) transport {
	base, ok := configured.(*awshttp.BuildableClient)
	if !ok {
		base = awshttp.NewBuildableClient()
	}
	base = base.WithDialerOptions(func(d *net.Dialer) { d.Timeout = c.ConnectTimeout })

	t := base.GetTransport()
	if c.dial != nil {
		t.DialContext = c.dial
	}
	// One connection per concurrent Send, and one for Account, which must not wait for them. The
	// SDK's default of 10 idle connections would dial again for every other email.
	t.MaxConnsPerHost = c.Concurrency + 1
	t.MaxIdleConnsPerHost = t.MaxConnsPerHost
	t.MaxIdleConns = t.MaxConnsPerHost
	t.WriteBufferSize = oneWrite
	t.TLSClientConfig.DynamicRecordSizingDisabled = true // otherwise TLS starts with records of 1 KiB, each written separately
	t.IdleConnTimeout = c.IdleTimeout
	t.TLSHandshakeTimeout = c.ConnectTimeout
	t.ResponseHeaderTimeout = c.ResponseTimeout

	// The SDK's transport already offers HTTP/2 in its TLS configuration, regardless of Protocols:
	// a server that accepts the offer would be answered in HTTP/1.
	t.ForceAttemptHTTP2 = false
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.TLSClientConfig.NextProtos = []string{"http/1.1"}
	return transport{t}
}

// oneWrite is the maximum size of a request that is sent by one system call and in one TLS record:
// an ordinary email with the SDK's headers is 3 to 12 KiB. 2 KiB of it are for the headers.
const (
	oneWrite  = 16 << 10
	smallBody = oneWrite - 2<<10
)

// errSuspended is the error of a call whose request was not sent, or not as a whole, because the machine was suspended. It was
// cancelled on our side.
var errSuspended = fmt.Errorf("the machine was suspended during the call, before the request was sent: %w", context.Canceled)

// Do makes one round trip. The trace is attached here, not to the context given to the SDK: that
// context is also used for the calls that fetch credentials, whose connections are irrelevant.
//
// If the machine was suspended until after the deadline of the call, its connection is closed before anything is
// written, and the rest of a large body is not sent: the lease of the email may be over.
func (t transport) Do(r *http.Request) (*http.Response, error) {
	if err := inMemory(r); err != nil {
		return nil, err
	}
	c, ok := r.Context().Value(callKey{}).(*call)
	if !ok {
		return t.http.RoundTrip(r)
	}
	if r.ContentLength > smallBody {
		c.body = &upload{ReadCloser: r.Body, left: r.ContentLength, suspended: func() bool { return suspendedIn(r.Context()) }}
		r.Body = c.body
	}
	suspended := false
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if suspended = suspendedIn(r.Context()); suspended {
			_ = got.Conn.Close()
			return
		}
		c.connected.Store(true)
	}})
	answer, err := t.http.RoundTrip(r.WithContext(ctx))
	if err != nil && suspended {
		err = errSuspended
	}
	return answer, err
}

// suspendedIn reports whether the wall clock has passed the deadline of a context that has not ended: its timer follows the
// monotonic clock, which stands still while the machine is suspended.
func suspendedIn(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && ctx.Err() == nil && time.Now().Round(0).After(deadline.Round(0))
}

// inMemory buffers a small body, so that net/http sends it together with the headers. Otherwise
// net/http sends the headers first: one more system call at either end, 3 % of the worker's CPU
// time. The body still cannot be rewound.
func inMemory(r *http.Request) error {
	if r.ContentLength <= 0 || r.ContentLength > smallBody {
		return nil
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// call is the state of one running Send.
type call struct {
	// connected is set when the call got a connection. Until then nothing was sent. A server that read the whole request and one
	// that closed at the first byte look the same, and the trace's WroteRequest fires for both: only the body tells more.
	connected atomic.Bool
	body      *upload // of a large request; a small one is written at once
}

// sent ends the call, and reports whether the whole request may have been sent, and whether a part of its body was.
func (c *call) sent() (complete, partial bool) {
	if !c.connected.Load() {
		return false, false
	}
	if c.body == nil {
		return true, false
	}
	return c.body.end()
}

type callKey struct{}

// watch returns a context whose requests report to the call.
func watch(ctx context.Context) (context.Context, *call) {
	c := new(call)
	return context.WithValue(ctx, callKey{}, c), c
}
