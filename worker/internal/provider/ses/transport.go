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

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// transport is the SDK's HTTP client. Three things a usual client does are missing:
//
//   - Redirects. A client follows 307 and 308 by sending the POST again to wherever
//     it was told; the round trip below hands the redirect to the classifier.
//   - HTTP/2. It would put all calls on one connection, so that one reset leaves all
//     of them unknown at once, and the pool would no longer follow the concurrency.
//   - Replays. net/http sends a request again by itself only if the reused connection
//     it had picked turned out dead before a single byte was written to it, and if
//     the body can be rewound; the SDK gives it no way to rewind, so today it never
//     does. Should that change, nothing is sent twice: what was not written did not
//     leave. Requests that were written are replayed only when they carry an
//     Idempotency-Key header (or a method without effects): never set that header.
type transport struct{ http *http.Transport }

// newTransport builds on the client the SDK was configured with, because that one
// trusts the certificates of AWS_CA_BUNDLE.
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
	// One connection for each Send and one for Account, which must not wait behind
	// them. The SDK's default of 10 idle ones would dial anew for every other email.
	t.MaxConnsPerHost = c.Concurrency + 1
	t.MaxIdleConnsPerHost = t.MaxConnsPerHost
	t.MaxIdleConns = t.MaxConnsPerHost
	t.WriteBufferSize = oneWrite
	t.TLSClientConfig.DynamicRecordSizingDisabled = true // it begins with records of 1 KiB, each written by itself
	t.IdleConnTimeout = c.IdleTimeout
	t.TLSHandshakeTimeout = c.ConnectTimeout
	t.ResponseHeaderTimeout = c.ResponseTimeout

	// The SDK's copy of the transport has HTTP/2 in its TLS offer already, whatever the
	// protocols say: a server that takes the offer would be answered in HTTP/1.
	t.ForceAttemptHTTP2 = false
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.TLSClientConfig.NextProtos = []string{"http/1.1"}
	return transport{t}
}

// oneWrite is how large a request may be to leave by one system call, and in one TLS record:
// an ordinary letter with the SDK's headers is 3 to 12 KiB. Of it the headers have 2 KiB.
const (
	oneWrite  = 16 << 10
	smallBody = oneWrite - 2<<10
)

// Do makes one round trip. The trace is attached here, not to the context given to
// the SDK: that context also reaches the calls that fetch credentials, and their
// connections say nothing about the email.
func (t transport) Do(r *http.Request) (*http.Response, error) {
	if err := inMemory(r); err != nil {
		return nil, err
	}
	if c, ok := r.Context().Value(callKey{}).(*call); ok {
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) { c.connected.Store(true) },
		}))
	}
	return t.http.RoundTrip(r)
}

// inMemory puts a small body where net/http sees that nobody has to be waited for. Of any
// other it sends the headers first, by themselves: a system call more at either end, 3 % of
// the worker's processor time. The body still cannot be rewound.
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

// call is what is known about one Send while it runs.
type call struct {
	// connected is set when the call got a connection. Until then nothing can have
	// been sent. From then on anything can: a server that read the whole request and
	// one that hung up on its first byte look the same from here, and the trace's
	// WroteRequest fires for both.
	connected atomic.Bool
}

type callKey struct{}

// watch returns a context whose requests report to the call.
func watch(ctx context.Context) (context.Context, *call) {
	c := new(call)
	return context.WithValue(ctx, callKey{}, c), c
}
