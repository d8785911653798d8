// Package ses sends email through Amazon SES. It implements provider.Sender; only the worker's main
// package refers to it.
//
// A Send makes at most one request: the SDK's retries are off, redirects are not followed and HTTP
// does not replay. SES has no idempotency token, so a repeated request delivers the email twice,
// and whether to risk that is the pipeline's decision. Send classifies every failed call: refused,
// certainly not sent, or unknown.
package ses

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/smithy-go/logging"

	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/awsaccess"
	"email-gateway/worker/internal/provider"
)

// Config configures the access to SES. Only Region is required; other zero fields use the default
// in parentheses.
type Config struct {
	Region string
	// Endpoint replaces the region's AWS endpoint: a VPC endpoint or an emulator. The
	// AWS_ENDPOINT_URL variables are ignored: one left over from another tool must not redirect
	// production mail to an emulator.
	Endpoint string
	// ConfigurationSet is the configuration set through which SES publishes events. Without one
	// there is no feedback.
	ConfigurationSet string
	// Concurrency is the number of concurrent Sends (10).
	Concurrency int

	// CallTimeout bounds a call whose context allows more (30 s).
	CallTimeout time.Duration
	// ConnectTimeout bounds dialing, and separately the TLS handshake (3 s). It is short because a
	// call that fails before the connection is established was certainly not sent.
	ConnectTimeout time.Duration
	// ResponseTimeout bounds the wait for the response (25 s). It is shorter than the call timeout,
	// so that an unresponsive SES fails with its own error.
	ResponseTimeout time.Duration
	// IdleTimeout is how long an unused connection is kept (4 s). It must be shorter than the
	// server's limit (5 s in Node, on which emulators run); otherwise a request may use a
	// connection that is being closed, and its outcome is unknown.
	IdleTimeout time.Duration

	// Tracer creates a span per Send.
	Tracer telemetry.Tracer

	// dial replaces the network dialer in tests.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(c.Concurrency, 10)
	c.CallTimeout = cmp.Or(c.CallTimeout, 30*time.Second)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 3*time.Second)
	c.ResponseTimeout = cmp.Or(c.ResponseTimeout, 25*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 4*time.Second)
	return c
}

// Sender sends through one SES account. It is safe for concurrent use.
type Sender struct {
	client           *sesv2.Client
	configurationSet string
	emulator         bool // the endpoint is not AWS's
	access           map[string]string
	account          atomic.Pointer[Account] // of the last response of GetAccount; nil before it
	callTimeout      time.Duration
	tracer           telemetry.Tracer
}

// New returns a Sender, or an error if the configuration is invalid. It makes no request and does
// not fetch credentials: they may become available later, and Send returns Park until then.
func New(ctx context.Context, c Config) (*Sender, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("configure ses: %w", err)
	}
	load := []func(*config.LoadOptions) error{
		config.WithRegion(c.Region),
		// The SDK's logger writes to stderr, bypassing ours.
		config.WithLogger(logging.Nop{}),
	}
	fixed, err := awsaccess.EmulatorCredentials(c.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("configure ses: %w", err)
	}
	if fixed != nil {
		load = append(load, config.WithCredentialsProvider(fixed))
	}
	loaded, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("load aws configuration: %w", err)
	}

	client := sesv2.NewFromConfig(loaded, func(o *sesv2.Options) {
		o.HTTPClient = newTransport(loaded.HTTPClient, c)
		o.Credentials = markedCredentials{loaded.Credentials}
		// AWS_MAX_ATTEMPTS would wrap the retryer again, so both are set.
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0
		o.EndpointResolverV2 = &endpoint{rules: o.EndpointResolverV2}
		o.BaseEndpoint = nil // ignores AWS_ENDPOINT_URL
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
	})
	if err := resolve(ctx, client.Options()); err != nil {
		return nil, fmt.Errorf("resolve ses endpoint: %w", err)
	}
	return &Sender{
		client: client, configurationSet: c.ConfigurationSet, emulator: awsaccess.IsEmulator(c.Endpoint),
		access: c.access(), callTimeout: c.CallTimeout, tracer: c.Tracer,
	}, nil
}

// Access returns what decides which emails SES accepts and where it publishes their events: the settings, whether the account
// is in the sandbox of the region, and the status of a review.
func (s *Sender) Access() map[string]any {
	access := map[string]any{"sandbox": s.inSandbox(), "review": ""}
	if account := s.account.Load(); account != nil {
		access["review"] = account.Review
	}
	for name, value := range s.access {
		access[name] = value
	}
	return access
}

func (s *Sender) inSandbox() bool {
	account := s.account.Load()
	return account != nil && !account.ProductionAccess
}

func (c Config) access() map[string]string {
	access := map[string]string{"region": c.Region, "configurationSet": c.ConfigurationSet}
	if u, err := url.Parse(c.Endpoint); err == nil { // without a password that it may contain
		access["endpoint"] = u.Host
	}
	return access
}

// Send makes one request. It implements provider.Sender.
func (s *Sender) Send(ctx context.Context, m provider.Message) (provider.Receipt, error) {
	ctx, span := s.tracer.Start(ctx, "ses SendEmail", telemetry.Client)
	defer span.End()
	span.Text("rpc.service", "sesv2")
	span.Text("rpc.method", "SendEmail")
	span.Text("attempt.id", m.AttemptID)
	receipt, err := s.send(ctx, m)
	var f *provider.Failure
	if errors.As(err, &f) {
		span.Text("outcome", string(f.Outcome))
		span.Fail(f.Code)
	} else {
		span.Text("ses.message_id", receipt.MessageID)
	}
	return receipt, err
}

func (s *Sender) send(ctx context.Context, m provider.Message) (provider.Receipt, error) {
	input, err := s.input(m)
	if err != nil {
		return provider.Receipt{}, invalid(err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()

	ctx, call := watch(ctx)
	output, err := s.client.SendEmail(ctx, input)
	if err != nil {
		complete, partial := call.sent()
		return provider.Receipt{}, classify(err, request{
			complete: complete, partial: partial, namesSet: s.configurationSet != "", emulator: s.emulator, sandbox: s.inSandbox(),
		})
	}
	// The SDK reads `{}` and an empty body as success without an id.
	if id := aws.ToString(output.MessageId); id != "" {
		return provider.Receipt{MessageID: id}, nil
	}
	return provider.Receipt{}, unreadable(errors.New("response has no message id"))
}

// check rejects settings that the SDK accepts here but fails on at every call.
func (c Config) check() error {
	if c.Region == "" {
		return errors.New("region is missing")
	}
	if strings.Trim(c.Region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("region %q is not a valid AWS region name", c.Region)
	}
	if c.Concurrency < 0 {
		return fmt.Errorf("concurrency %d is negative", c.Concurrency)
	}
	if c.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return fmt.Errorf("parse endpoint: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return fmt.Errorf("endpoint %q is not an http or https address", c.Endpoint)
	}
	return nil
}
