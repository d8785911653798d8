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
	if since.IsZero() || o.silent != since {
		t.Errorf("with two messages in flight the silence began at %v, want %v", o.silent, since)
	}
	o.confirmed()
	confirmed := o.silent
	o.forget(first)
	if !confirmed.After(since) || o.silent != confirmed {
		t.Errorf("after the confirm of one of two messages the silence began at %v, want %v", o.silent, confirmed)
	}
	o.forget(second)
	if !o.silent.IsZero() {
		t.Errorf("with no message in flight the silence began at %v, want never", o.silent)
	}
}
