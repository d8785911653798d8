package rabbitmq

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The time without a confirm is measured while messages are in flight.
func TestPublishChannel_Silence(t *testing.T) {
	t.Parallel()
	o := &publishChannel{inFlight: make(map[string][]*publication)}
	first, second := &publication{message: amqp.Publishing{MessageId: "1"}}, &publication{message: amqp.Publishing{MessageId: "2"}}
	o.take(first)
	since := o.silent
	o.take(second)
	o.forget(first)
	if since.IsZero() || o.silent != since {
		t.Errorf("with one of two messages in flight the silence began at %v, want %v", o.silent, since)
	}
	o.forget(second)
	if !o.silent.IsZero() {
		t.Errorf("with no message in flight the silence began at %v, want never", o.silent)
	}
}
