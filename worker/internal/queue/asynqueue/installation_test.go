package asynqueue_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
	"email-gateway/shared/logtest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/redistest"
)

// Two installations with one Redis: the second one neither puts nor takes a task, says whose Redis it is, and uses it once the
// marker is deleted.
func TestWithInstallation(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	id, other := uuid.New(), uuid.New()
	var log logtest.Buffer
	connect := func(id uuid.UUID) asynqueue.Conn {
		return parse(t, server.URL).WithInstallation(func(context.Context) (uuid.UUID, error) { return id, nil }, slog.New(slog.NewTextHandler(&log, nil)))
	}
	publisherOf := func(c asynqueue.Conn) *asynqueue.Publisher {
		p := asynqueue.NewPublisher(c)
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	ours := publisherOf(connect(id))
	publish(t, ours, "1")
	if err := ours.Ping(t.Context()); err != nil {
		t.Error(err)
	}

	theirs := connect(other)
	handled := make(chan string, 10)
	consumer := asynqueue.NewConsumer(asynqueue.ConsumerConfig{
		Log: slog.New(slog.DiscardHandler), Conn: theirs, Concurrency: 2,
		Handler: func(_ context.Context, task queue.Task) error {
			handled <- task.ID
			return nil
		},
	})
	if err := consumer.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = consumer.Stop(context.WithoutCancel(t.Context())) })
	foreign := publisherOf(theirs)
	_, err := foreign.Publish(t.Context(), queue.Task{ID: "2", Queue: email.QueueNormal, Payload: []byte("{}")})
	values := theirs.Client()
	t.Cleanup(func() { _ = values.Close() })
	for name, err := range map[string]error{
		"publish": err, "ping": foreign.Ping(t.Context()), "consumer's ping": consumer.Ping(t.Context()), "set": values.Set(t.Context(), "rate", 1, 0).Err(),
	} {
		if err == nil || !strings.Contains(err.Error(), id.String()) {
			t.Errorf("%s: %v, want the id of the other installation", name, err)
		}
	}
	if n := log.Count("wrong redis"); n != 1 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
	direct := open[*redis.Client](t, server.URL)
	if n := direct.LLen(t.Context(), "asynq:{"+email.QueueNormal+"}:pending").Val(); n != 1 || len(handled) != 0 {
		t.Errorf("%d tasks wait and %d were taken, want the first one waiting", n, len(handled))
	}

	if n := direct.Del(t.Context(), "email-gateway:installation").Val(); n != 1 {
		t.Fatal("the marker has another name")
	}
	if err := consumer.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	waittest.Until(t, "taken", func() bool { return len(handled) == 1 })
	if err := ours.Ping(t.Context()); err == nil {
		t.Error("the first installation does not notice the marker of the second")
	}
}

// Without Postgres the installation is unknown: no task is put or taken, and Redis does not count as down.
func TestWithInstallation_Unknown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	known := make(chan struct{})
	p := asynqueue.NewPublisher(parse(t, server.URL).WithInstallation(func(context.Context) (uuid.UUID, error) {
		select {
		case <-known:
			return uuid.Nil, nil
		default:
			return uuid.Nil, context.DeadlineExceeded
		}
	}, slog.New(slog.DiscardHandler)))
	t.Cleanup(func() { _ = p.Close() })
	if err := p.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := p.Publish(t.Context(), queue.Task{ID: "1", Queue: email.QueueNormal, Payload: []byte("{}")}); err == nil {
		t.Error("published")
	}
	close(known)
	publish(t, p, "1")
}

// A Redis that does not let the marker be read, as a Cluster without the marker's node, is used until a Ping finds it to be
// another installation's.
func TestWithInstallation_Unread(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	direct := open[*redis.Client](t, server.URL)
	limit := func(rules ...any) {
		if err := direct.Do(t.Context(), append([]any{"ACL", "SETUSER", "default"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var log logtest.Buffer
	p := asynqueue.NewPublisher(parse(t, server.URL).WithInstallation(func(context.Context) (uuid.UUID, error) { return uuid.New(), nil },
		slog.New(slog.NewTextHandler(&log, nil))))
	t.Cleanup(func() { _ = p.Close() })
	if err := direct.Set(t.Context(), "email-gateway:installation", uuid.NewString(), 0).Err(); err != nil {
		t.Fatal(err)
	}
	limit("resetkeys", "~asynq:*", "~email-gateway:{*")
	for range 2 {
		publish(t, p, uuid.NewString())
	}
	if err := p.Ping(t.Context()); err != nil || log.Count("before its marker was compared") != 1 {
		t.Errorf("%v, logged: %s", err, log.String())
	}
	limit("~*")
	if err := p.Ping(t.Context()); err == nil || log.Count("wrong redis") != 1 {
		t.Errorf("%v, logged: %s", err, log.String())
	}
	if _, err := p.Publish(t.Context(), queue.Task{ID: "3", Queue: email.QueueNormal, Payload: []byte("{}")}); err == nil {
		t.Error("published")
	}
}
