package rabbitmq_test

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"email-gateway/worker/internal/queue/rabbitmq"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	url := os.Getenv("RABBITMQ_URL")
	if url == "" {
		t.Fatal("RABBITMQ_URL is not set: run the tests through ./scripts/test.sh")
	}
	if err := rabbitmq.Probe(url)(t.Context()); err != nil {
		t.Errorf("a broker that is up: %v", err)
	}
	if err := rabbitmq.Probe(strings.Replace(url, "gateway:gateway@", "gateway:wrong@", 1))(t.Context()); err == nil {
		t.Error("a wrong password is let in")
	}

	// Something that takes connections and never says a word.
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	begun := time.Now()
	if err := rabbitmq.Probe("amqp://" + mute.Addr().String())(t.Context()); err == nil || time.Since(begun) > 10*time.Second {
		t.Errorf("a mute broker: %v after %s, want an error within seconds", err, time.Since(begun))
	}
}
