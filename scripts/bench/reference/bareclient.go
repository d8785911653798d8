// Package reference sends emails without the gateway and with as little work as possible. The benchmark compares
// the gateway's speed with it.
package reference

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"
	"github.com/google/uuid"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/load"
)

// bareClient sends emails with the SDK's call only.
type bareClient struct {
	ses         *sesv2.Client
	concurrency int
}

// NewBareClient keeps as many idle connections as concurrent calls: with Go's default of two it
// would spend its time on new connections.
func NewBareClient(endpoint string, concurrency int) (*bareClient, error) {
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("make an SES client: the default transport is not an *http.Transport")
	}
	transport = transport.Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = concurrency, concurrency
	return &bareClient{concurrency: concurrency, ses: sesv2.New(sesv2.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(endpoint), Credentials: credentials.NewStaticCredentialsProvider("bench", "bench", ""),
		HTTPClient: &http.Client{Transport: transport},
	})}, nil
}

// Loop sends that number of emails and returns the rate per second.
func (b *bareClient) Loop(ctx context.Context, emails int) (float64, error) {
	return load.MeasureRate(b.concurrency, emails, func(serial int64) error { return b.send(ctx, serial) })
}

// send makes the same call as the worker for one email.
func (b *bareClient) send(ctx context.Context, serial int64) error {
	number := string(environment.AppendSerial(nil, serial))
	return b.deliver(ctx, environment.Address(number), "Sua fatura está disponível", strings.ReplaceAll(environment.EmailHTML, environment.Placeholder, number), nil)
}

// deliver makes the same call as the worker for any email.
func (b *bareClient) deliver(ctx context.Context, to, subject, html string, headers map[string]string) error {
	var list []types.MessageHeader
	for name, value := range headers {
		list = append(list, types.MessageHeader{Name: aws.String(name), Value: aws.String(value)})
	}
	_, err := b.ses.SendEmail(ctx, &sesv2.SendEmailInput{
		FromEmailAddress: aws.String(environment.Sender),
		Destination:      &types.Destination{ToAddresses: []string{to}},
		Content: &types.EmailContent{Simple: &types.Message{
			Subject: content(subject),
			Body:    &types.Body{Html: content(html)},
			Headers: list,
		}},
		EmailTags: []types.MessageTag{
			{Name: aws.String("outbox_id"), Value: aws.String(uuid.NewString())},
			{Name: aws.String("attempt_id"), Value: aws.String(uuid.NewString())},
			{Name: aws.String("company_id"), Value: aws.String(uuid.NewString())},
		},
	})
	if err != nil {
		return fmt.Errorf("send with a bare client: %w", err)
	}
	return nil
}

func content(text string) *types.Content {
	return &types.Content{Data: aws.String(text), Charset: aws.String("UTF-8")}
}
