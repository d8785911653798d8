package rabbitmq_test

import (
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"email-gateway/shared/logtest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue/rabbitmq"
	"email-gateway/worker/internal/queue/rabbitmqtest"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"amqp://", "amqp:///", "amqps://mq", "amqps://u:p@mq:5671/vhost?heartbeat=5",
		"amqp://u:p@a:5672,b:5672,c/vhost", "amqp://[::1]:5672,[::2]/?heartbeat=10",
	} {
		if _, err := rabbitmq.ParseURL(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "http://u:hunter2@mq/", "amqp://u:hunter2@mq:port/", "amqp://u:hunter2%zz@mq", "amqp://u:hunter2@a:5672,b:port,c/", "amqp://u:hunter2@a,,b/", "amqp://u:hunter2@a,:5672/", "amqp://u:hunter2%zz@a,b/",
	} {
		if _, err := rabbitmq.ParseURL(bad); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Wherever the broker's address is in the list, a connection to it does not wait until the others are given up: one
// accepts connections and does not answer, like a frozen node, and one refuses them.
func TestDial_OtherAddresses(t *testing.T) {
	t.Parallel()
	broker, prefix := rabbitmqtest.Shared(t)
	user, rest, _ := strings.Cut(broker, "@")
	address, vhost, _ := strings.Cut(rest, "/")
	topology := rabbitmq.Recipients(time.Second, 1).WithPrefix(prefix)
	for range 8 { // the dial order is random
		var givenUp, late, silent atomic.Bool
		frozen := muteUntil(t, func() { givenUp.Store(true) })
		reached := silenceable(t, address, &silent, func() { late.Store(late.Load() || givenUp.Load()) })
		conn := parse(t, user+"@"+strings.Join([]string{frozen, "127.0.0.1:1", reached}, ",")+"/"+vhost)
		inspector := rabbitmq.NewInspector((fixture{log: &logtest.Buffer{}}).logger(), conn, topology)
		if err := inspector.Ping(t.Context()); err != nil || late.Load() {
			t.Errorf("%v; the frozen address was given up first: %t", err, late.Load())
		}
		_ = inspector.Close()
	}
}

// An error has each address with its own failure, and no password.
func TestDial_NoneAnswers(t *testing.T) {
	t.Parallel()
	url := os.Getenv("RABBITMQ_URL")
	_, rest, _ := strings.Cut(url, "@")
	address, _, _ := strings.Cut(rest, "/")
	mute, dead := mute(t), "127.0.0.1:1"
	conn := parse(t, "amqp://gateway:hunter2@"+address+","+mute+","+dead+"/")
	inspector := rabbitmq.NewInspector((fixture{log: &logtest.Buffer{}}).logger(), conn)
	defer func() { _ = inspector.Close() }()
	start := time.Now()
	err := inspector.Ping(t.Context())
	if err == nil || time.Since(start) > time.Minute {
		t.Fatalf("%v after %s", err, time.Since(start))
	}
	for _, want := range []string{address + ": ", mute + ": ", dead + ": ", "403", "refused"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the password is in %v", err)
	}
}

// A connection to a broker that sends nothing is given up after 1.5 heartbeats, 7.5 s.
func TestSilentBroker(t *testing.T) {
	t.Parallel()
	s := mailing(t)
	user, rest, _ := strings.Cut(s.url, "@")
	address, vhost, _ := strings.Cut(rest, "/")
	var silent atomic.Bool
	s.conn = parse(t, user+"@"+silenceable(t, address, &silent, func() {})+"/"+vhost)
	tasks := make(deliveries)
	s.consume(tasks.handle)
	s.publish(s.publisher())
	tasks.next(t).all(nil)
	silent.Store(true)
	start := time.Now()
	waittest.Until(t, "the connection is given up", func() bool { return s.log.Count("connection to rabbitmq lost") > 0 })
	if took := time.Since(start); took < 4*time.Second {
		t.Errorf("given up after %s, want 7.5 s", took)
	}
	silent.Store(false)
	s.publish(s.publisher())
	tasks.next(t).all(nil)
}

// silenceable is the address of a proxy that drops the broker's data while silent is set. It calls reached for each
// connection.
func silenceable(t *testing.T, broker string, silent *atomic.Bool, reached func()) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			reached()
			server, err := net.Dial("tcp", broker)
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
			go func() {
				_, _ = io.Copy(dropping{client, silent}, server)
				_ = client.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

type dropping struct {
	net.Conn
	silent *atomic.Bool
}

func (d dropping) Write(p []byte) (int, error) {
	if d.silent.Load() {
		return len(p), nil
	}
	return d.Conn.Write(p)
}

// mute is an address that accepts connections and never answers.
func mute(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// muteUntil is a mute address. It calls left when a client has closed its connection.
func muteUntil(t *testing.T, left func()) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, client)
				_ = client.Close()
				left()
			}()
		}
	}()
	return listener.Addr().String()
}
