package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
	"email-gateway/shared/standardwebhook"
)

const (
	// attemptTime limits a whole attempt, from the resolution of the host name to the response headers.
	attemptTime = 15 * time.Second
	dialTime    = 5 * time.Second
	// drainTime and drainBytes limit how much of a response's body is read and discarded, so that its connection can be
	// reused.
	drainTime  = time.Second
	drainBytes = 16 << 10
	// headerBytes limits a response's headers.
	headerBytes = 16 << 10
	// maxRetryAfter limits Retry-After to the longest wait of the schedule.
	maxRetryAfter = 24 * time.Hour
)

// Codes of failed attempts. The code of a response is HTTP_ and its status.
const (
	CodeTimeout        = "TIMEOUT"
	CodeNameNotFound   = "NAME_NOT_FOUND"
	CodeRefused        = "CONNECTION_REFUSED"
	CodeTLS            = "TLS_FAILED"
	CodeAddressRefused = "ADDRESS_NOT_PUBLIC"
	CodeConnection     = "CONNECTION_FAILED"
	CodeURL            = "URL_NOT_ALLOWED"
)

// Message is one signed request.
type Message struct {
	Company uuid.UUID
	URL     string
	ID      string // webhook-id, the same in every attempt
	Body    []byte
	Secrets []standardwebhook.Secret
}

// Outcome is the result of an attempt.
type Outcome struct {
	Delivered bool
	Status    int    // of the response; 0 = none
	Code      string // why the attempt failed; "" = it did not fail
	Took      time.Duration
	// RetryAfter is the pause that the endpoint requested; 0 = none.
	RetryAfter time.Duration
}

// Gone reports whether the endpoint answered 410: it wants no further events.
func (o Outcome) Gone() bool { return o.Status == http.StatusGone }

// Refused reports whether the endpoint answered and refuses this one event. The excluded responses say the same about
// every request: it lacks credentials, comes at the wrong time or to the wrong URL.
func (o Outcome) Refused() bool {
	switch o.Status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusGone, http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusUpgradeRequired, http.StatusTooManyRequests:
		return false
	}
	return o.Status >= 400 && o.Status < 500
}

// Throttled reports whether the response asks for a lower rate of requests.
func (o Outcome) Throttled() bool {
	return o.Status == http.StatusTooManyRequests || o.Status == http.StatusServiceUnavailable
}

// Sender makes attempts. It is safe for concurrent use.
type Sender struct {
	client       *http.Client
	policy       standardwebhook.Policy
	timeout      time.Duration
	dialer       *net.Dialer
	tls          *tls.Config
	connectivity *connectivity
}

// SenderParams configure a Sender. Only tests set more than AllowPrivate and RefusedNetworks.
type SenderParams struct {
	// AllowPrivate permits http:// and addresses that are not public.
	AllowPrivate bool
	// RefusedNetworks are networks that no request is sent to, also if AllowPrivate is set.
	RefusedNetworks  []netip.Prefix
	Resolver         *net.Resolver  // nil: the system's
	RootCAs          *x509.CertPool // nil: the system's
	Timeout          time.Duration  // of an attempt; 0 = 15 s
	DisconnectedTime time.Duration  // see the constant; 0 = 10 min
}

// NewSender makes a Sender.
func NewSender(p SenderParams) *Sender {
	timeout := cmp.Or(p.Timeout, attemptTime)
	policy := standardwebhook.Policy{AllowPrivate: p.AllowPrivate, Refused: p.RefusedNetworks}
	dialer, connectivity := newDialer(policy, p.Resolver), newConnectivity(cmp.Or(p.DisconnectedTime, disconnectedTime))
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: p.RootCAs,
		// Called after the certificate is verified. A TCP connection does not suffice: egress filters accept connections to any
		// address, and then close them or drop their packets.
		VerifyConnection: func(tls.ConnectionState) error {
			connectivity.succeeded()
			return nil
		},
	}
	transport := &http.Transport{
		Proxy:                  nil, // with a proxy from the environment the dialer could not check addresses
		DialContext:            dialer.DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    timeout,
		ResponseHeaderTimeout:  timeout,
		MaxResponseHeaderBytes: headerBytes,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		// Closes a connection whose peer is gone while an attempt waits for it. Otherwise later attempts would use it too.
		HTTP2:               &http.HTTP2Config{SendPingTimeout: timeout / 3, PingTimeout: timeout / 3},
		MaxIdleConns:        1024,
		MaxIdleConnsPerHost: maxConcurrent,
		IdleConnTimeout:     30 * time.Second,
	}
	return &Sender{policy: policy, timeout: timeout, dialer: dialer, tls: config, connectivity: connectivity, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes idle connections.
func (s *Sender) Close() { s.client.CloseIdleConnections() }

// Send makes one attempt. It returns an error only if ctx has ended: the outcome is then unknown.
func (s *Sender) Send(ctx context.Context, m Message) (Outcome, error) {
	start := time.Now()
	if s.policy.CheckURL(m.URL) != nil {
		return Outcome{Code: CodeURL}, nil
	}
	trying, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(trying, http.MethodPost, m.URL, bytes.NewReader(m.Body))
	if err != nil {
		return Outcome{Code: CodeURL}, nil
	}
	request.Header = http.Header{
		"Content-Type": {"application/json"},
		"User-Agent":   {"email-gateway-webhooks/" + service.Version()},
	}
	request.Header.Set(standardwebhook.HeaderID, m.ID)
	request.Header.Set(standardwebhook.HeaderTimestamp, standardwebhook.Timestamp(start))
	request.Header.Set(standardwebhook.HeaderSignature, standardwebhook.Signature(m.Secrets, m.ID, start, m.Body))
	answer, err := s.client.Do(request) //nolint:bodyclose // drain closes it
	took := time.Since(start)
	switch {
	case err != nil && ctx.Err() != nil:
		return Outcome{}, ctx.Err()
	case err != nil:
		s.connectivity.failed(m.Company, request.URL.Host)
		return Outcome{Code: codeOf(err), Took: took}, nil
	}
	s.connectivity.succeeded() // also on a connection of an earlier attempt
	defer drain(answer.Body, cancel)
	o := Outcome{Status: answer.StatusCode, Took: took}
	if o.Delivered = answer.StatusCode >= 200 && answer.StatusCode < 300; !o.Delivered {
		o.Code = "HTTP_" + strconv.Itoa(answer.StatusCode)
		o.RetryAfter = retryAfter(answer.Header.Get("Retry-After"), start.Add(took))
	}
	return o, nil
}

// drain reads the rest of a short body, so that the connection can be reused.
func drain(body io.ReadCloser, cancel context.CancelFunc) {
	timer := time.AfterFunc(drainTime, cancel)
	_, _ = io.CopyN(io.Discard, body, drainBytes)
	timer.Stop()
	_ = body.Close() // closes the connection if the body was not read to its end
}

// retryAfter parses seconds or a date, and returns at most maxRetryAfter. It returns 0 for any other text.
func retryAfter(text string, now time.Time) time.Duration {
	var wait time.Duration
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// codeOf returns the code of an attempt without a response.
func codeOf(err error) string {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var timeout net.Error
	switch {
	case errors.Is(err, errAddress):
		return CodeAddressRefused
	case errors.As(err, &name) && !name.IsTimeout:
		return CodeNameNotFound
	case errors.As(err, &certificate), errors.As(err, &alert), errors.As(err, &record):
		return CodeTLS
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return CodeTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return CodeRefused
	}
	return CodeConnection
}
