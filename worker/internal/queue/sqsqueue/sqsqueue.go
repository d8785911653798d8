// Package sqsqueue reads an Amazon SQS queue. It implements feedback.Queue; only the worker's main
// package refers to it.
package sqsqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go/logging"

	"email-gateway/worker/internal/awsaccess"
	"email-gateway/worker/internal/feedback"
)

const (
	// connectTimeout bounds dialing, and separately the TLS handshake.
	connectTimeout = 3 * time.Second
	// answerTimeout bounds the wait for an answer, a long poll of 20 s included.
	answerTimeout = 25 * time.Second
	// callTimeout bounds a whole call.
	callTimeout = answerTimeout + 5*time.Second
)

// Queue is one SQS queue.
type Queue struct {
	client *sqs.Client
	url    string
}

// host is the host of a queue's URL at AWS, with the queue's region.
var host = regexp.MustCompile(`^sqs(?:-fips)?\.([a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|api\.aws)$`)

// New returns the queue with the URL. Calls go to the URL's host: AWS, a VPC endpoint or an emulator.
// region is used if the host names none. New makes no request and does not fetch credentials.
func New(ctx context.Context, queueURL, region string) (*Queue, error) {
	u, err := url.Parse(queueURL)
	if err != nil || u.Host == "" {
		return nil, errors.New("configure sqs: the queue's URL is not valid") // the error of net/url contains the URL
	}
	if found := host.FindStringSubmatch(u.Hostname()); found != nil {
		region = found[1]
	}
	endpoint := u.Scheme + "://" + u.Host
	load := []func(*config.LoadOptions) error{
		config.WithRegion(region),
		// The logger of the SDK would write to stderr instead of the program's log.
		config.WithLogger(logging.Nop{}),
	}
	fixed, err := awsaccess.EmulatorCredentials(endpoint)
	if err != nil {
		return nil, fmt.Errorf("configure sqs: %w", err)
	}
	if fixed != nil {
		load = append(load, config.WithCredentialsProvider(fixed))
	}
	loaded, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("load aws configuration: %w", err)
	}
	client := sqs.NewFromConfig(loaded, func(o *sqs.Options) {
		o.HTTPClient = httpClient(loaded.HTTPClient)
		// The reader retries with its own pauses. With AWS_MAX_ATTEMPTS set, the SDK would wrap the retryer.
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0
		// The URL names the host, also one for FIPS or dual stack: with these settings of the environment the SDK would refuse it.
		o.BaseEndpoint = aws.String(endpoint)
		o.EndpointOptions.UseFIPSEndpoint, o.EndpointOptions.UseDualStackEndpoint = aws.FIPSEndpointStateDisabled, aws.DualStackEndpointStateDisabled
	})
	if err := resolve(ctx, client.Options()); err != nil {
		return nil, fmt.Errorf("resolve sqs endpoint: %w", err)
	}
	return &Queue{client: client, url: queueURL}, nil
}

// resolve resolves the endpoint once at the start, so that settings that conflict are found before the first call.
func resolve(ctx context.Context, o sqs.Options) error {
	_, err := o.EndpointResolverV2.ResolveEndpoint(ctx, sqs.EndpointParameters{
		Region: aws.String(o.Region), Endpoint: o.BaseEndpoint,
		UseFIPS:      aws.Bool(o.EndpointOptions.UseFIPSEndpoint == aws.FIPSEndpointStateEnabled),
		UseDualStack: aws.Bool(o.EndpointOptions.UseDualStackEndpoint == aws.DualStackEndpointStateEnabled),
	})
	return err
}

// httpClient is based on the client with which the SDK was configured, because that trusts the certificates of AWS_CA_BUNDLE.
func httpClient(configured aws.HTTPClient) aws.HTTPClient {
	base, ok := configured.(*awshttp.BuildableClient)
	if !ok {
		base = awshttp.NewBuildableClient()
	}
	return base.
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = connectTimeout }).
		WithTransportOptions(func(t *http.Transport) {
			t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = connectTimeout, answerTimeout
		})
}

// Receive implements feedback.Queue.
func (q *Queue) Receive(ctx context.Context, wait time.Duration) ([]feedback.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	output, err := q.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: aws.String(q.url), MaxNumberOfMessages: feedback.MaxMessages, WaitTimeSeconds: int32(wait / time.Second),
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameApproximateReceiveCount},
	})
	if err != nil {
		return nil, fmt.Errorf("receive messages: %w", err)
	}
	messages := make([]feedback.Message, 0, len(output.Messages))
	for _, m := range output.Messages {
		receives, err := strconv.Atoi(m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
		if err != nil {
			receives = math.MaxInt // an emulator that does not count
		}
		messages = append(messages, feedback.Message{
			ID: aws.ToString(m.MessageId), Receipt: aws.ToString(m.ReceiptHandle), Body: aws.ToString(m.Body), Receives: receives,
		})
	}
	return messages, nil
}

// Delete implements feedback.Queue.
func (q *Queue) Delete(ctx context.Context, messages []feedback.Message) error {
	entries := make([]types.DeleteMessageBatchRequestEntry, 0, len(messages))
	for i, m := range messages {
		entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(m.Receipt)})
	}
	output, err := q.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: aws.String(q.url), Entries: entries})
	if err != nil {
		return fmt.Errorf("delete messages: %w", err)
	}
	// SQS may refuse a receipt whose visibility timeout has ended; the message is then delivered again.
	for _, failed := range output.Failed {
		if !failed.SenderFault {
			return fmt.Errorf("delete messages: %s", aws.ToString(failed.Code))
		}
	}
	return nil
}
