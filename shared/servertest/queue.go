package servertest

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// Queue is an SQS queue of a test.
type Queue struct {
	URL string
	ARN string

	tb     testing.TB
	server string
}

// SharedSQS returns the URL of the SQS server shared by all tests.
func SharedSQS(tb testing.TB) string {
	tb.Helper()
	server := os.Getenv("SQS_URL")
	if server == "" {
		tb.Fatal("SQS_URL is not set: run the tests through ./scripts/test.sh")
	}
	return server
}

// NewQueue creates a queue with the attributes, such as VisibilityTimeout, on the server.
func NewQueue(tb testing.TB, server string, attributes map[string]string) *Queue {
	tb.Helper()
	return NamedQueue(tb, server, "test-"+uuid.NewString(), attributes)
}

// NamedQueue is NewQueue with a name.
func NamedQueue(tb testing.TB, server, name string, attributes map[string]string) *Queue {
	tb.Helper()
	q := &Queue{tb: tb, server: server}
	var made struct {
		QueueURL string `json:"QueueUrl"`
	}
	q.call("CreateQueue", map[string]any{"QueueName": name, "Attributes": attributes}, &made)
	q.URL = made.QueueURL
	q.ARN = q.attribute("QueueArn")
	return q
}

// Send sends a message.
func (q *Queue) Send(body string) {
	q.tb.Helper()
	q.call("SendMessage", map[string]any{"QueueUrl": q.URL, "MessageBody": body}, nil)
}

// Len returns the number of messages, those in flight included.
func (q *Queue) Len() int {
	q.tb.Helper()
	n := 0
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"} {
		some, err := strconv.Atoi(q.attribute(name))
		if err != nil {
			q.tb.Fatal(err)
		}
		n += some
	}
	return n
}

func (q *Queue) attribute(name string) string {
	q.tb.Helper()
	var found struct{ Attributes map[string]string }
	q.call("GetQueueAttributes", map[string]any{"QueueUrl": q.URL, "AttributeNames": []string{name}}, &found)
	return found.Attributes[name]
}

func (q *Queue) call(action string, input map[string]any, output any) {
	q.tb.Helper()
	body, err := json.Marshal(input)
	if err != nil {
		q.tb.Fatal(err)
	}
	answer := post(q.tb, q.server, "application/x-amz-json-1.0", "AmazonSQS."+action, string(body))
	if output == nil {
		return
	}
	if err := json.Unmarshal(answer, output); err != nil {
		q.tb.Fatalf("%s: %v", action, err)
	}
}

// Subscribe makes an SNS topic that delivers to the queue, and returns a function that publishes to
// it. raw is raw message delivery.
func (q *Queue) Subscribe(raw bool) (publish func(message string)) {
	q.tb.Helper()
	var topic struct {
		ARN string `xml:"CreateTopicResult>TopicArn"`
	}
	sns := func(output any, values map[string]string) {
		q.tb.Helper()
		form := url.Values{}
		for name, value := range values {
			form.Set(name, value)
		}
		answer := post(q.tb, q.server, "application/x-www-form-urlencoded", "", form.Encode())
		if output == nil {
			return
		}
		if err := xml.Unmarshal(answer, output); err != nil {
			q.tb.Fatal(err)
		}
	}
	sns(&topic, map[string]string{"Action": "CreateTopic", "Name": "test-" + uuid.NewString()})
	sns(nil, map[string]string{
		"Action": "Subscribe", "TopicArn": topic.ARN, "Protocol": "sqs", "Endpoint": q.ARN,
		"Attributes.entry.1.key": "RawMessageDelivery", "Attributes.entry.1.value": strconv.FormatBool(raw),
	})
	return func(message string) {
		q.tb.Helper()
		sns(nil, map[string]string{"Action": "Publish", "TopicArn": topic.ARN, "Message": message})
	}
}

func post(tb testing.TB, to, contentType, target, body string) []byte {
	tb.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, to, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	if target != "" {
		request.Header.Set("X-Amz-Target", target)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return answer
}
