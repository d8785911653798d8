package doctor_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"email-gateway/api/internal/doctor"
	"email-gateway/shared/unsubscribe"
)

func TestExamine_Processes(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	report(t, d, "worker", "here-3", `{"redis":{"status":"disconnected"},"ses":{"status":"connected"}}`)
	wants(t, "one of two", doctor.Examine(t.Context(), p),
		"warning redis: Reachable from dispatcher here-1, worker here-2, but not from worker here-3.")
	report(t, d, "worker", "here-3", `[]`)
	wants(t, "another release", doctor.Examine(t.Context(), p), "warning worker: The status reported by here-3 cannot be read")
	exec(t, d, "DELETE FROM process_status WHERE instance = 'here-3'")
	report(t, d, "worker", "here-2", `{"redis":{"status":"connected"},"ses":{"status":"disconnected"},"rabbitmq":{"status":"connected"},"consumers":0}`)
	wants(t, "all of one", doctor.Examine(t.Context(), p),
		"failure rabbitmq: No worker consumes its queues.", "failure ses: Not reachable from worker here-2.")
	report(t, d, "worker", "here-2", `{"redis":{"status":"connected"},"ses":{"status":"connected"},"rabbitmq":{"status":"connected"},"consumers":4}`)
	const dispatcher = `{"redis":{"status":"connected"},"rabbitmq":{"status":"connected"},"storage":{"status":"connected"},"redisKeeps":`
	report(t, d, "dispatcher", "here-1", dispatcher+`{"version":"6.2.14","policy":"noeviction","appendOnly":true}}`)
	wants(t, "durable Redis", doctor.Examine(t.Context(), p))
	report(t, d, "dispatcher", "here-1", dispatcher+`{"version":"6.0.16","policy":"noeviction","appendOnly":true}}`)
	wants(t, "an old Redis", doctor.Examine(t.Context(), p), "failure redis: Redis 6.0.16 is too old.")
	report(t, d, "dispatcher", "here-1", dispatcher+`{"policy":"volatile-lru","appendOnly":false}}`)
	wants(t, "non-durable Redis", doctor.Examine(t.Context(), p),
		"warning redis: Redis may evict tasks when its memory is full: maxmemory-policy is volatile-lru.", "warning redis: Redis loses its queues when it restarts")
	report(t, d, "dispatcher", "here-1", `{"redis":{"status":"connected"},"rabbitmq":{"status":"connected"},"storage":{"status":"connected"}}`)
	// A process that has just started has not connected yet, and its report is up to 5 s old.
	exec(t, d, "DELETE FROM process_status WHERE service = 'worker'")
	const early = `{"redis":{"status":"connected"},"ses":{"status":"disconnected"},"rabbitmq":{"status":"disconnected"},"consumers":0}`
	reportAfter(t, d, time.Second, "worker", "here-5", early)
	exec(t, d, "UPDATE process_status SET updated_at = now() - interval '4 s', started_at = now() - interval '5 s' WHERE service = 'worker'")
	wants(t, "a starting worker", doctor.Examine(t.Context(), p), "warning rabbitmq: Not reached yet from worker here-5, which started just now.",
		"warning rabbitmq: No worker consumes its queues yet", "warning ses: Not reached yet")
	exec(t, d, "DELETE FROM process_status WHERE service = 'dispatcher'")
	wants(t, "only a starting worker", doctor.Examine(t.Context(), p), "failure dispatcher:", "warning rabbitmq: Not reached yet", "warning ses:")
	report(t, d, "dispatcher", "here-1", `{"redis":{"status":"connected"},"rabbitmq":{"status":"connected"},"storage":{"status":"connected"}}`)
	reportAfter(t, d, 6*time.Second, "worker", "here-5", early)
	wants(t, "a worker after its start", doctor.Examine(t.Context(), p), "warning rabbitmq: Reachable from dispatcher here-1, but not from worker here-5.",
		"failure rabbitmq: No worker consumes", "failure ses: Not reachable from worker here-5.")
	exec(t, d, "DELETE FROM process_status WHERE service = 'worker'")
	report(t, d, "worker", "here-2", `{"redis":{"status":"connected"},"ses":{"status":"connected"},"rabbitmq":{"status":"connected"},"consumers":4}`)

	exec(t, d, "UPDATE process_status SET updated_at = now() - interval '1 min' WHERE service = 'worker'")
	wants(t, "no heartbeat", doctor.Examine(t.Context(), p), "failure worker: No worker is running. Without heartbeat: here-2 for 1m")
	report(t, d, "worker", "here-4", `{"redis":{"status":"connected"},"ses":{"status":"connected"},"rabbitmq":{"status":"connected"},"consumers":1}`)
	wants(t, "a successor", doctor.Examine(t.Context(), p), "warning worker: Without heartbeat: here-2 for 1m")
	exec(t, d, "DELETE FROM process_status")
	wants(t, "no processes", doctor.Examine(t.Context(), p), "failure dispatcher: No dispatcher is running: none has sent a heartbeat within the last hour.",
		"failure worker: No worker is running", "skipped redis:", "skipped rabbitmq:", "skipped ses:")

	// Without RabbitMQ, mailings are disabled; that is only a failure if the api accepts some.
	report(t, d, "dispatcher", "here-1", `{"redis":{"status":"connected"}}`)
	report(t, d, "worker", "here-2", `{"redis":{"status":"connected"},"ses":{"status":"connected"},"consumers":0}`)
	wants(t, "RabbitMQ only for the api", doctor.Examine(t.Context(), p), "failure rabbitmq: RABBITMQ_URL is set for the api, but neither for dispatcher nor worker")
	report(t, d, "worker", "here-2", `{"redis":{"status":"connected"},"ses":{"status":"connected"},"rabbitmq":{"status":"connected"},"consumers":4}`)
	wants(t, "not for the dispatcher", doctor.Examine(t.Context(), p), "failure rabbitmq: RABBITMQ_URL is set, but for no dispatcher: mailings are not sent.")
	report(t, d, "dispatcher", "here-1", `{"redis":{"status":"connected"},"rabbitmq":{"status":"connected"}}`)
	report(t, d, "worker", "here-2", `{"redis":{"status":"connected"},"ses":{"status":"connected"},"consumers":0}`)
	wants(t, "not for the worker", doctor.Examine(t.Context(), p), "failure rabbitmq: RABBITMQ_URL is set, but for no worker")
	report(t, d, "dispatcher", "here-1", `{"redis":{"status":"connected"}}`)
	p.Environ = append(p.Environ, "RABBITMQ_URL=", "PUBLIC_URL=http://127.0.0.1:8080")
	wants(t, "no RabbitMQ", doctor.Examine(t.Context(), p))
}

// Workers that send through different settings are named with them, except those of a release that does not report them.
func TestExamine_SESAccess(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	const worker = `{"redis":{"status":"connected"},"ses":{"status":"connected"},"rabbitmq":{"status":"connected"},"consumers":4,"sesAccess":`
	const right = `{"region":"sa-east-1","endpoint":"","configurationSet":"feedback"}}`
	report(t, d, "worker", "here-3", worker+right)
	report(t, d, "worker", "here-4", worker+right)
	wants(t, "equal", doctor.Examine(t.Context(), p))
	report(t, d, "worker", "here-5", worker+`{"region":"us-east-1","endpoint":"vpce-1.example","configurationSet":""}}`)
	wants(t, "different", doctor.Examine(t.Context(), p), "warning ses: The workers send through different settings: "+
		"region sa-east-1 with the configuration set feedback (worker here-3, worker here-4); "+
		"region us-east-1 at vpce-1.example without a configuration set (worker here-5).")
	exec(t, d, "UPDATE process_status SET updated_at = now() - interval '1 min' WHERE instance = 'here-5'")
	wants(t, "it has stopped", doctor.Examine(t.Context(), p), "warning worker: Without heartbeat: here-5")
	report(t, d, "worker", "here-4", worker+`{"region":"sa-east-1","endpoint":"","configurationSet":"feedback","sandbox":true}}`)
	wants(t, "in the sandbox", doctor.Examine(t.Context(), p), "warning worker: Without heartbeat: here-5",
		"warning ses: SES has the account of worker here-4 in its sandbox (region sa-east-1): it sends only to verified recipients.")
	report(t, d, "worker", "here-4", worker+`{"region":"sa-east-1","endpoint":"","configurationSet":"feedback","review":"PROBATION"}}`)
	wants(t, "under review", doctor.Examine(t.Context(), p), "warning worker: Without heartbeat: here-5",
		"warning ses: SES reviews the account of worker here-4 (region sa-east-1): its enforcement status is PROBATION.")
	report(t, d, "worker", "here-4", worker+`{"region":"sa-east-1","endpoint":"","configurationSet":"feedback","review":"SHUTDOWN"}}`)
	wants(t, "paused", doctor.Examine(t.Context(), p), "warning worker: Without heartbeat: here-5",
		"warning ses: After a review, AWS has paused the account of worker here-4 (region sa-east-1): its enforcement status is SHUTDOWN.")
}

// Workers that lack keys of the api are named, except those of a release that does not report them.
func TestExamine_Keys(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	worker := func(ids string) string {
		return `{"redis":{"status":"connected"},"ses":{"status":"connected"},"rabbitmq":{"status":"connected"},"consumers":4,"keyIds":` + ids + `}`
	}
	report(t, d, "worker", "here-3", worker(`["b","a"]`))
	wants(t, "with another key", doctor.Examine(t.Context(), p))
	report(t, d, "worker", "here-4", worker(`["b"]`))
	report(t, d, "worker", "here-5", worker(`[]`))
	wants(t, "nothing to decrypt", doctor.Examine(t.Context(), p))
	exec(t, d, "INSERT INTO webhook_endpoints (id, company_id, slot, url, secret_enc, feed_position) SELECT gen_random_uuid(), id, 1, 'https://x.example', 'e', 0 FROM companies")
	wants(t, "without the key", doctor.Examine(t.Context(), p), "warning keys: Workers lack keys of CPF_CNPJ_KEYS: worker here-4 lacks a; worker here-5 has none.")
	p.Environ = append(p.Environ, "CPF_CNPJ_KEYS=")
	wants(t, "without the api's settings", doctor.Examine(t.Context(), p), "skipped settings:", "warning keys: Workers lack keys of CPF_CNPJ_KEYS: worker here-5 has none.")
}

// Workers whose unsubscribe links the api cannot open are named, except those of a release that does not report them.
func TestExamine_UnsubscribeLinks(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	var keys unsubscribe.Keys
	if err := keys.UnmarshalText([]byte(base64.StdEncoding.EncodeToString(make([]byte, 32)))); err != nil {
		t.Fatal(err)
	}
	worker := func(instance, publicURL, key string) {
		report(t, d, "worker", instance, fmt.Sprintf(`{"redis":{"status":"connected"},"ses":{"status":"connected"},"rabbitmq":{"status":"connected"},"consumers":4,
			"unsubscribeLinks":{"publicUrl":%q,"key":%q}}`, publicURL, key))
	}
	const right = "https://mail.acme.example"
	key := keys.Fingerprints()[0]
	worker("here-3", right+"/", key)
	wants(t, "equal", doctor.Examine(t.Context(), p))
	worker("here-4", "http://127.0.0.1:8080", key)
	worker("here-5", right, "another")
	worker("here-6", "", key)
	wants(t, "different", doctor.Examine(t.Context(), p), "warning unsubscribe: Workers have other settings for unsubscribe links: "+
		"worker here-4 makes links to http://127.0.0.1:8080, the api has https://mail.acme.example; "+
		"worker here-5 makes links with a key that the api does not have; worker here-6 lacks one of them and sends no mailing.")
	p.Environ = append(p.Environ, "CPF_CNPJ_KEYS=")
	wants(t, "without the api's settings", doctor.Examine(t.Context(), p), "skipped settings:",
		"warning unsubscribe: Workers have other settings for unsubscribe links: worker here-6 lacks one of them and sends no mailing; the workers differ from each other")
}

// The storage has one finding, whether dispatchers, gatewayctl or both check it.
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
		{"all reach it", up, there, "ok storage: Reachable from dispatcher here-1 and gatewayctl."},
		{"not checked here", up, nil, "ok storage: Reachable from dispatcher here-1."},
		{"not from here", up, gone, "failure storage: Not reachable from here: no such bucket. Reachable from dispatcher here-1."},
		{"not there", down, there, "warning storage: Reachable from gatewayctl, but not from dispatcher here-1."},
		{"not there, and not checked here", down, nil, "failure storage: Not reachable from dispatcher here-1."},
		{"from nowhere", down, gone, "failure storage: Not reachable from here: no such bucket. Not reachable from dispatcher here-1 either."},
		{"only read", up, there, "failure storage: The api cannot store files. Others can read it: dispatcher here-1 and gatewayctl."},
	} {
		p.Health = func(context.Context) (h doctor.Health, err error) {
			h.Status, h.Database.Status = "ok", "connected"
			if tt.name == "only read" {
				h.Status, h.Storage.Status = "degraded", "inaccessible"
			}
			return h, nil
		}
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
