package rabbitmq_test

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/logtest"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/rabbitmq"
	"email-gateway/worker/internal/queue/rabbitmqtest"
)

// Two installations with one virtual host: the second one cannot connect, and its log says whose it is.
func TestWithInstallation(t *testing.T) {
	t.Parallel()
	url, prefix := rabbitmqtest.Shared(t)
	const marker = "email-gateway.installation"
	rabbitmqtest.Delete(t, url, nil, []string{marker})
	topology := rabbitmq.Mailing().WithPrefix(prefix)
	var queues, exchanges []string
	for _, q := range topology.Queues() {
		queues = append(queues, q.Name)
	}
	for _, e := range topology.Exchanges {
		exchanges = append(exchanges, e.Name)
	}
	rabbitmqtest.Delete(t, url, queues, exchanges)
	var log logtest.Buffer
	publisherOf := func(id uuid.UUID) *rabbitmq.Publisher {
		conn, err := rabbitmq.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		p := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{
			Log: slog.New(slog.NewTextHandler(&log, nil)), Topologies: []rabbitmq.Topology{topology},
			Conn: conn.WithInstallation(func(context.Context) (uuid.UUID, error) { return id, nil }),
		})
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	publish := func(p *rabbitmq.Publisher) error {
		_, err := p.Publish(t.Context(), queue.Task{ID: "1", Queue: topology.Main.Name, Payload: []byte("{}")})
		return err
	}
	id, other := uuid.New(), uuid.New()
	for range 2 { // a program that starts again finds its own marker
		ours := publisherOf(id)
		if err := publish(ours); err != nil || ours.Ping(t.Context()) != nil {
			t.Fatalf("%v, %v", err, ours.Ping(t.Context()))
		}
	}
	theirs := publisherOf(other)
	for name, err := range map[string]error{"publish": publish(theirs), "ping": theirs.Ping(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), id.String()) {
			t.Errorf("%s: %v, want the id of the other installation", name, err)
		}
	}
	if !strings.Contains(log.String(), id.String()) {
		t.Errorf("logged: %s", log.String())
	}
	if err := rabbitmqtest.Channel(t, url).ExchangeDelete(marker, false, false); err != nil {
		t.Fatal(err)
	}
	if err := publish(theirs); err != nil {
		t.Errorf("after the marker was deleted: %v", err)
	}
}

// A login that is limited as the README says can declare everything, including the marker.
func TestWithInstallation_LimitedLogin(t *testing.T) {
	t.Parallel()
	server := rabbitmqtest.Start(t)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	const ours = `mailing|recipients|email-gateway\.`
	server.RabbitMQCtl("add_user", "limited", "secret")
	server.RabbitMQCtl("set_permissions", "-p", "/", "limited", "^("+ours+")", `^(amq\.default|`+ours+")", "^("+ours+")")
	at.User = url.UserPassword("limited", "secret")
	conn, err := rabbitmq.ParseURL(at.String())
	if err != nil {
		t.Fatal(err)
	}
	var log logtest.Buffer
	p := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Topologies: []rabbitmq.Topology{rabbitmq.Mailing(), rabbitmq.Recipients(time.Second, 3)},
		Conn: conn.WithInstallation(func(context.Context) (uuid.UUID, error) { return uuid.Nil, nil }),
	})
	t.Cleanup(func() { _ = p.Close() })
	if _, err := p.Publish(t.Context(), queue.Task{ID: "1", Queue: rabbitmq.Mailing().Main.Name, Payload: []byte("{}")}); err != nil {
		t.Error(err)
	}
	if log.String() != "" {
		t.Errorf("logged: %s", log.String())
	}
}
