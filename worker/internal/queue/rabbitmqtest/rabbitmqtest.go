// Package rabbitmqtest provides a test with its own prefix on the shared RabbitMQ, or with a private server that it may stop,
// kill and fill. Only tests use it.
package rabbitmqtest

import (
	"os"
	"testing"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/shared/servertest"
)

// Shared returns the URL of the shared server, and a prefix for this test's queues and exchanges,
// which Delete removes. It needs RABBITMQ_URL; without it the test fails.
func Shared(tb testing.TB) (url, prefix string) {
	tb.Helper()
	url = os.Getenv("RABBITMQ_URL")
	if url == "" {
		tb.Fatal("RABBITMQ_URL is not set: run the tests through ./scripts/test.sh")
	}
	return url, "test-" + uuid.NewString() + "."
}

// Delete deletes queues and exchanges when the test ends.
func Delete(tb testing.TB, url string, queues, exchanges []string) {
	tb.Cleanup(func() {
		channel := Channel(tb, url)
		for _, name := range queues {
			if _, err := channel.QueueDelete(name, false, false, false); err != nil {
				tb.Errorf("clean up rabbitmq: %v", err)
			}
		}
		for _, name := range exchanges {
			if err := channel.ExchangeDelete(name, false, false); err != nil {
				tb.Errorf("clean up rabbitmq: %v", err)
			}
		}
	})
}

// Channel opens a connection and a channel on it, closed when the test ends.
func Channel(tb testing.TB, url string) *amqp.Channel {
	tb.Helper()
	connection, err := amqp.Dial(url)
	if err != nil {
		tb.Fatalf("connect to rabbitmq: %v", err)
	}
	tb.Cleanup(func() { _ = connection.Close() })
	channel, err := connection.Channel()
	if err != nil {
		tb.Fatalf("open channel: %v", err)
	}
	return channel
}

// Server is a private RabbitMQ.
type Server struct{ *servertest.Server }

// Start starts a private server. It takes some seconds.
func Start(tb testing.TB) Server {
	tb.Helper()
	return Server{servertest.Start(tb, "rabbitmq")}
}

// FillMemory raises the server's memory alarm, so that it accepts no messages.
func (s Server) FillMemory() { s.RabbitMQCtl("set_vm_memory_high_watermark", "0.00001") }

// FreeMemory clears the alarm.
func (s Server) FreeMemory() { s.RabbitMQCtl("set_vm_memory_high_watermark", "0.9") }
