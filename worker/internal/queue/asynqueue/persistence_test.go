package asynqueue_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/redistest"
)

func TestPersistence(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := asynqueue.NewPublisher(parse(t, server.URL))
	t.Cleanup(func() { _ = p.Close() })
	o, err := redis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	for _, want := range []asynqueue.Persistence{{Policy: "noeviction", AppendOnly: true}, {Policy: "allkeys-lru", AppendOnly: false}} {
		appendOnly := "no"
		if want.AppendOnly {
			appendOnly = "yes"
		}
		for name, value := range map[string]string{"maxmemory-policy": want.Policy, "appendonly": appendOnly} {
			if err := client.ConfigSet(t.Context(), name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
		got, err := p.Persistence(t.Context())
		if !strings.Contains(got.Version, ".") {
			t.Errorf("version %q", got.Version)
		}
		if got.Version = ""; got != want || err != nil {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
}
