package rabbitmq

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/worker/internal/queue"
)

func TestRoute(t *testing.T) {
	t.Parallel()
	topology := Mailing()
	fault := errors.New("a fault")
	for name, one := range map[string]struct {
		retried int
		err     error
		to      string
		left    int
		reason  string
	}{
		"first":           {0, &queue.RetryLater{Reason: "away"}, mailingRetry1, 1, "away"},
		"second":          {1, &queue.RetryLater{Reason: "away"}, mailingRetry2, 2, "away"},
		"used up":         {2, &queue.RetryLater{Reason: "away"}, mailingDLQ, 2, "away"},
		"beyond":          {7, fault, mailingDLQ, 7, "a fault"},
		"fault":           {0, fault, mailingRetry1, 1, "a fault"},
		"dead":            {0, &queue.Dead{Reason: "never"}, mailingDLQ, 0, "never"},
		"wrapped":         {0, fmt.Errorf("row 1: %w", &queue.Dead{Reason: "never"}), mailingDLQ, 0, "never"},
		"uncounted":       {1, &queue.RetryLater{Reason: "held", Uncounted: true}, mailingRetry1, 1, "held"},
		"uncounted, last": {2, &queue.RetryLater{Reason: "held", Uncounted: true}, mailingRetry1, 2, "held"},
	} {
		to, message := route(topology, result{
			delivery: amqp.Delivery{MessageId: "1", Headers: amqp.Table{
				"x-death": []any{}, "x-first-death-queue": "q", "x-last-death-reason": "r", "x-delivery-count": int64(3), "traceparent": "00-abc",
			}},
			task: queue.Task{Retried: one.retried, LastTry: one.retried >= topology.MaxRetries},
			err:  one.err,
		})
		want := amqp.Table{"x-retries": int32(one.left), "x-retry-reason": one.reason, "traceparent": "00-abc"}
		if diff := cmp.Diff(want, message.Headers); to.Name != one.to || diff != "" {
			t.Errorf("%s: to %s, want %s; headers (-want +got)\n%s", name, to.Name, one.to, diff)
		}
	}
}

func TestShorten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "short", strings.Repeat("x", maxReason), strings.Repeat("ção", 400)} {
		got := shorten(text)
		if !utf8.ValidString(got) || len(got) > maxReason+len("…") || len(text) <= maxReason && got != text {
			t.Errorf("%d bytes became %d: %q", len(text), len(got), got)
		}
	}
}

func TestUnlimited(t *testing.T) {
	t.Parallel()
	for version, want := range map[any]any{
		"3.10.8": nil, "3.13.7": nil, "4.0.3": int64(-1), "4.1.0-rc.1": int64(-1), "12.0": int64(-1), "": nil, nil: nil,
	} {
		if got := unlimited(version); got != want {
			t.Errorf("%v: %v, want %v", version, got, want)
		}
	}
}

func TestDLQBackoff(t *testing.T) {
	t.Parallel()
	var p dlqBackoff
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if got := p.lengthen(); got != want*time.Second {
			t.Errorf("waits %s, want %d s", got, want)
		}
	}
	p.reset()
	if got := p.lengthen(); got != time.Second {
		t.Errorf("after a success it waits %s", got)
	}
}
