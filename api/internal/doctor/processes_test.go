package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"email-gateway/api/internal/doctor"
)

func TestExamine_Processes(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	report(t, d, "worker", "here-3", `{"redis":{"status":"disconnected"},"ses":{"status":"connected"}}`)
	wants(t, "one of two", doctor.Examine(t.Context(), p),
		"warning redis: It is reached by dispatcher here-1, worker here-2, and not by worker here-3.")
	report(t, d, "worker", "here-3", `[]`)
	wants(t, "another release", doctor.Examine(t.Context(), p), "warning worker: What here-3 reports cannot be read")
	exec(t, d, "DELETE FROM process_status WHERE instance = 'here-3'")
	report(t, d, "worker", "here-2", `{"redis":{"status":"connected"},"ses":{"status":"disconnected"},"rabbitmq":{"status":"connected"},"consumers":0}`)
	wants(t, "all of one", doctor.Examine(t.Context(), p),
		"failure rabbitmq: Nobody takes messages from its queues.", "failure ses: It is not reached by worker here-2.")
	report(t, d, "worker", "here-2", `{"redis":{"status":"connected"},"ses":{"status":"connected"},"rabbitmq":{"status":"connected"},"consumers":4}`)
	const dispatcher = `{"redis":{"status":"connected"},"rabbitmq":{"status":"connected"},"storage":{"status":"connected"},"redisKeeps":`
	report(t, d, "dispatcher", "here-1", dispatcher+`{"policy":"noeviction","appendOnly":true}}`)
	wants(t, "a Redis that keeps", doctor.Examine(t.Context(), p))
	report(t, d, "dispatcher", "here-1", dispatcher+`{"policy":"volatile-lru","appendOnly":false}}`)
	wants(t, "a Redis that forgets", doctor.Examine(t.Context(), p),
		"warning redis: It may throw tasks away when its memory is full: its maxmemory-policy is volatile-lru.", "warning redis: It forgets its queues when it restarts")
	report(t, d, "dispatcher", "here-1", `{"redis":{"status":"connected"},"rabbitmq":{"status":"connected"},"storage":{"status":"connected"}}`)
	// What has just started has made no connections yet, and says so for as long as 5 s.
	exec(t, d, "DELETE FROM process_status WHERE service = 'worker'")
	const early = `{"redis":{"status":"connected"},"ses":{"status":"disconnected"},"rabbitmq":{"status":"disconnected"},"consumers":0}`
	reportAfter(t, d, time.Second, "worker", "here-5", early)
	exec(t, d, "UPDATE process_status SET updated_at = now() - interval '4 s', started_at = now() - interval '5 s' WHERE service = 'worker'")
	wants(t, "a beginner", doctor.Examine(t.Context(), p), "warning rabbitmq: It was not reached yet when worker here-5 had just started.",
		"warning rabbitmq: Nobody took messages from its queues yet", "warning ses: It was not reached yet")
	exec(t, d, "DELETE FROM process_status WHERE service = 'dispatcher'")
	wants(t, "a beginner alone", doctor.Examine(t.Context(), p), "failure dispatcher:", "warning rabbitmq: It was not reached yet", "warning ses:")
	report(t, d, "dispatcher", "here-1", `{"redis":{"status":"connected"},"rabbitmq":{"status":"connected"},"storage":{"status":"connected"}}`)
	reportAfter(t, d, 6*time.Second, "worker", "here-5", early)
	wants(t, "no beginner any more", doctor.Examine(t.Context(), p), "warning rabbitmq: It is reached by dispatcher here-1, and not by worker here-5.",
		"failure rabbitmq: Nobody takes messages", "failure ses: It is not reached by worker here-5.")
	exec(t, d, "DELETE FROM process_status WHERE service = 'worker'")
	report(t, d, "worker", "here-2", `{"redis":{"status":"connected"},"ses":{"status":"connected"},"rabbitmq":{"status":"connected"},"consumers":4}`)

	exec(t, d, "UPDATE process_status SET updated_at = now() - interval '1 min' WHERE service = 'worker'")
	wants(t, "silence", doctor.Examine(t.Context(), p), "failure worker: No worker is running. Silent: here-2 for 1m")
	report(t, d, "worker", "here-4", `{"redis":{"status":"connected"},"ses":{"status":"connected"},"rabbitmq":{"status":"connected"},"consumers":1}`)
	wants(t, "a successor", doctor.Examine(t.Context(), p), "warning worker: Silent: here-2 for 1m")
	exec(t, d, "DELETE FROM process_status")
	wants(t, "nobody", doctor.Examine(t.Context(), p), "failure dispatcher: No dispatcher is running: none has reported within an hour.",
		"failure worker: No worker is running", "skipped redis:", "skipped rabbitmq:", "skipped ses:")

	// Without RabbitMQ there are no mailings, and that is well; unless the api takes some in.
	report(t, d, "dispatcher", "here-1", `{"redis":{"status":"connected"}}`)
	report(t, d, "worker", "here-2", `{"redis":{"status":"connected"},"ses":{"status":"connected"},"consumers":0}`)
	wants(t, "half a RabbitMQ", doctor.Examine(t.Context(), p), "failure rabbitmq: The api has a RABBITMQ_URL, and neither dispatcher nor worker has")
	p.Environ = append(p.Environ, "RABBITMQ_URL=", "PUBLIC_URL=http://127.0.0.1:8080")
	wants(t, "no RabbitMQ", doctor.Examine(t.Context(), p))
}

// Whoever is asked about the storage, it is told of once.
func TestExamine_Storage(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	const up, down = `{"redis":{"status":"connected"},"rabbitmq":{"status":"connected"},"storage":{"status":"connected"}}`,
		`{"redis":{"status":"connected"},"rabbitmq":{"status":"connected"},"storage":{"status":"disconnected"}}`
	there, gone := p.Ping, func(context.Context) error { return errors.New("no such bucket") }
	for _, tt := range []struct {
		name, dispatcher string
		ping             func(context.Context) error
		want             string
	}{
		{"all reach it", up, there, "ok storage: It is reached by dispatcher here-1 and gatewayctl from here."},
		{"nobody is asked here", up, nil, "ok storage: It is reached by dispatcher here-1."},
		{"not from here", up, gone, "failure storage: It is not reached from here: no such bucket. It is reached by dispatcher here-1."},
		{"not there", down, there, "warning storage: It is reached by gatewayctl from here, and not by dispatcher here-1."},
		{"not there, and nobody is asked here", down, nil, "failure storage: It is not reached by dispatcher here-1."},
		{"by nobody", down, gone, "failure storage: It is not reached from here: no such bucket. It is not reached by dispatcher here-1 either."},
	} {
		report(t, d, "dispatcher", "here-1", tt.dispatcher)
		p.Ping = tt.ping
		var got []string
		for _, f := range doctor.Examine(t.Context(), p).Findings {
			if f.Check == "storage" {
				got = append(got, fmt.Sprintf("%s %s: %s", f.Status, f.Check, f.Text))
			}
		}
		if !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
