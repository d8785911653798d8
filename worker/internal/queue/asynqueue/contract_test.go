package asynqueue_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/queuetest"
	"email-gateway/worker/internal/queue/redistest"
	"github.com/redis/go-redis/v9"
)

// TestContract runs the suite on one private server; each test has its own queues there.
func TestContract(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	queuetest.Run(t, func(t *testing.T) queuetest.Broker {
		prefix := "test-" + uuid.NewString() + ":"
		between := newProxy(t, server.URL)
		publisher := asynqueue.NewPublisher(parse(t, between.url).WithPrefix(prefix))
		t.Cleanup(func() { _ = publisher.Close() })
		return queuetest.Broker{
			Publisher: publisher,
			Consume: func(t *testing.T, handler queue.Handler) func(context.Context) error {
				return consume(t, parse(t, server.URL).WithPrefix(prefix), handler)
			},
			Waiting: func(t *testing.T) int {
				n, err := open[*redis.Client](t, server.URL).ZCard(t.Context(), "asynq:{"+prefix+email.QueueNormal+"}:retry").Result()
				if err != nil {
					t.Fatal(err)
				}
				return int(n)
			},
			Restart:   func(*testing.T) { server.Stop(); server.Start() },
			LoseReply: func(*testing.T) { between.lose.Store(true) },
		}
	})
}

func consume(t *testing.T, conn asynqueue.Conn, handler queue.Handler) (stop func(context.Context) error) {
	t.Helper()
	consumer := asynqueue.NewConsumer(asynqueue.ConsumerConfig{Log: quiet(), Conn: conn, Handler: handler, Concurrency: 4})
	if err := consumer.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	return consumer.Stop
}

func parse(t *testing.T, text string) asynqueue.Conn {
	t.Helper()
	conn, err := asynqueue.ParseURL(text)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// proxy is between a client and Redis, and can lose an answer.
type proxy struct {
	url    string
	target string
	lose   atomic.Bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	p := &proxy{target: u.Host}
	u.Host = listener.Addr().String()
	p.url = u.String()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	answer := make([]byte, 64<<10)
	for {
		n, err := server.Read(answer)
		if err != nil || p.lose.CompareAndSwap(true, false) {
			return
		}
		if _, err := client.Write(answer[:n]); err != nil {
			return
		}
	}
}
