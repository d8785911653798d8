package config_test

import (
	"encoding/base64"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"email-gateway/shared/clientip"
	"email-gateway/shared/email"
	"email-gateway/shared/email/emailtest"
	"email-gateway/shared/store/reputation"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/config"
)

const (
	database = "DATABASE_URL=postgres://gateway:hunter2@db/gateway"
	redis    = "REDIS_URL=redis://:hunter2@redis:6379/0"
	day      = config.Age(24 * time.Hour)
)

var (
	usualRecipients = config.Recipients{
		RetryTTLMS: 10_000, MaxRetries: 3, BatchSize: 1000, BatchTimeoutMS: 1000, ProcConcurrency: 8, BatchConcurrency: 2,
	}
	usualRetention = config.Retention{
		Outbox: 30 * day, Files: 30 * day, Unstarted: 30 * day, Entries: 365 * day, Logs: 365 * day, DeletedRecipients: 400 * day,
	}
	untraced       = telemetry.TraceSettings{Sampler: "parentbased_always_on", SamplerArg: 1}
	traced         = telemetry.TraceSettings{OTLPEndpoint: "http://collector:4318", OTLPHeaders: "key=hunter2", Sampler: "traceidratio", SamplerArg: 0.01}
	cpfCNPJKeys    = "CPF_CNPJ_KEYS=a:" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	unsubscribeKey = "UNSUBSCRIBE_KEY=" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	// cmp cannot read the unexported fields of key rings and networks.
	keysAside = cmp.Options{
		cmpopts.EquateComparable(netip.Prefix{}),
		cmpopts.IgnoreFields(config.Mailings{}, "UnsubscribeKeys"),
		cmpopts.IgnoreFields(config.Webhooks{}, "CPFCNPJKeys"),
	}
	usualWebhooks = config.Webhooks{
		WebhookConcurrency: 64, ProbeInterval: 5 * time.Minute, DisableAfter: 120 * time.Hour,
		WebhookBackoff: email.Backoff{
			5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
		},
	}
)

func TestReadDispatcher_Defaults(t *testing.T) {
	t.Parallel()
	got, err := config.ReadDispatcher([]string{database, redis, "SES_MAX_SEND_RATE="})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Dispatcher{
		Process: config.Process{
			DatabaseURL: "postgres://gateway:hunter2@db/gateway", RedisURL: "redis://:hunter2@redis:6379/0",
			Environment: "development", LogLevel: "info", TraceSettings: untraced, SendRate: 100, MaxAttempts: 5, Backoff: emailtest.Backoff(), TTL: 24 * time.Hour,
		},
		Recipients: usualRecipients, Recovery: config.Recovery{StaleAfter: 30 * time.Second}, Retention: usualRetention,
		Addr: "127.0.0.1:9091", ListenURL: "postgres://gateway:hunter2@db/gateway", PollInterval: 250 * time.Millisecond,
		RescueAfter: 10 * time.Second, StorageURL: "file:///var/lib/email-gateway", RecoveryInterval: 5 * time.Minute,
		Reputation: config.Reputation{
			ReputationGuard: true, // the rates are parts per million
			Complaints1h:    reputation.Thresholds{Warn: 5_000, Pause: 10_000, MinSent: 200, MinEvents: 5},
			Complaints24h:   reputation.Thresholds{Warn: 1_500, Pause: 3_000, MinSent: 1000, MinEvents: 10},
			Bounces1h:       reputation.Thresholds{Warn: 50_000, Pause: 100_000, MinSent: 200, MinEvents: 20},
			Bounces24h:      reputation.Thresholds{Warn: 25_000, Pause: 50_000, MinSent: 1000, MinEvents: 50},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestReadWorker_Defaults(t *testing.T) {
	t.Parallel()
	got, err := config.ReadWorker([]string{database, redis})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Worker{
		Process: config.Process{
			DatabaseURL: "postgres://gateway:hunter2@db/gateway", RedisURL: "redis://:hunter2@redis:6379/0",
			Environment: "development", LogLevel: "info", TraceSettings: untraced, SendRate: 100, MaxAttempts: 5,
			Backoff: email.Backoff{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}, TTL: 24 * time.Hour,
		},
		Mailings:   config.Mailings{PublicURL: "http://127.0.0.1:8080", Lead: 50_000},
		Recipients: usualRecipients, Recovery: config.Recovery{StaleAfter: 30 * time.Second}, Webhooks: usualWebhooks,
		Addr: "127.0.0.1:9092", StorageURL: "file:///var/lib/email-gateway", Region: "us-east-1",
	}
	if diff := cmp.Diff(want, got, keysAside); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Links to this machine are no default in production: a worker without mailings has none, and postpones their emails.
func TestReadWorker_NoPublicURLInProduction(t *testing.T) {
	t.Parallel()
	got, err := config.ReadWorker([]string{database, redis, "ENVIRONMENT=production", "AWS_REGION=sa-east-1"})
	if err != nil || got.PublicURL != "" {
		t.Errorf("PUBLIC_URL is %q, %v; want none", got.PublicURL, err)
	}
}

// The tags hold in words what the contract is in code.
func TestReadWorker_TriesAndWaitsAreTheContracts(t *testing.T) {
	t.Parallel()
	got, err := config.ReadWorker([]string{database, redis})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(emailtest.Backoff(), got.Backoff); diff != "" || got.MaxAttempts != email.MaxAttempts {
		t.Errorf("%d tries, want %d; waits (-want +got)\n%s", got.MaxAttempts, email.MaxAttempts, diff)
	}
}

func TestReadWorker_ReadsEveryVariable(t *testing.T) {
	t.Parallel()
	got, err := config.ReadWorker([]string{
		database, "REDIS_URL=redis-sentinel://a:26379,b:26379/1?master=mymaster", "RABBITMQ_URL=amqp://a:5672,b:5672,c/",
		"ENVIRONMENT=production", "LOG_LEVEL=debug", "WORKER_ADDR=:80", "WORKER_CONCURRENCY=50", "SES_MAX_SEND_RATE=14.5",
		"SES_ENDPOINT=https://127.0.0.1:8005", "STORAGE_URL=file:///srv/mail", "SES_CONFIGURATION_SET=feedback", "AWS_REGION=sa-east-1",
		"EMAIL_MAX_ATTEMPTS=3", "EMAIL_BACKOFF=10ms, 20ms", "EMAIL_TTL=1h",
		"MONITORING_USER=ops", "MONITORING_PASSWORD=hunter2", "MONITORING_WRITABLE=true",
		"PUBLIC_URL=https://mail.acme.example", unsubscribeKey, "MAILING_LEAD=1000", "MX_RESOLVER=10.0.0.2:53", "MAILING_STALE_AFTER=1m",
		"RECIPIENTS_RETRY_TTL_MS=1000", "RECIPIENTS_MAX_RETRIES=2", "RECIPIENTS_BATCH_SIZE=100", "RECIPIENTS_BATCH_TIMEOUT_MS=50",
		"RECIPIENTS_PROC_CONCURRENCY=4", "RECIPIENTS_BATCH_CONCURRENCY=1",
		cpfCNPJKeys, "WEBHOOK_ALLOW_PRIVATE=true", "WEBHOOK_REFUSED_NETWORKS=203.0.113.0/24", "WEBHOOK_CONCURRENCY=8", "WEBHOOK_BACKOFF=1s,2s", "WEBHOOK_PROBE_INTERVAL=3s", "WEBHOOK_DISABLE_AFTER=4s",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318", "OTEL_EXPORTER_OTLP_HEADERS=key=hunter2", "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.UnsubscribeKeys.Empty() {
		t.Error("the key for unsubscribe links is not read")
	}
	if got.CPFCNPJKeys.Newest() != "a" {
		t.Error("the keys of webhook secrets are not read")
	}
	want := config.Worker{
		Process: config.Process{
			DatabaseURL: "postgres://gateway:hunter2@db/gateway", RedisURL: "redis-sentinel://a:26379,b:26379/1?master=mymaster",
			RabbitMQURL: "amqp://a:5672,b:5672,c/", Environment: "production", LogLevel: "debug", TraceSettings: traced, SendRate: 14.5, MaxAttempts: 3,
			Backoff: email.Backoff{10 * time.Millisecond, 20 * time.Millisecond}, TTL: time.Hour, ConfigurationSet: "feedback",
		},
		Mailings:   config.Mailings{PublicURL: "https://mail.acme.example", Lead: 1000, MXResolver: "10.0.0.2:53"},
		Recipients: config.Recipients{RetryTTLMS: 1000, MaxRetries: 2, BatchSize: 100, BatchTimeoutMS: 50, ProcConcurrency: 4, BatchConcurrency: 1},
		Recovery:   config.Recovery{StaleAfter: time.Minute},
		Webhooks: config.Webhooks{
			AllowPrivate: true, RefusedNetworks: clientip.Networks{netip.MustParsePrefix("203.0.113.0/24")}, WebhookConcurrency: 8, WebhookBackoff: email.Backoff{time.Second, 2 * time.Second}, ProbeInterval: 3 * time.Second, DisableAfter: 4 * time.Second,
		},
		Addr: ":80", Concurrency: 50, Endpoint: "https://127.0.0.1:8005", StorageURL: "file:///srv/mail", Region: "sa-east-1",
		MonitoringUser: "ops", MonitoringPassword: "hunter2", MonitoringWritable: true,
	}
	if diff := cmp.Diff(want, got, keysAside); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestFeedbackWindow(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]time.Duration{
		"": 0, "SES_CONFIGURATION_SET=feedback": 2 * time.Minute,
		"SES_CONFIGURATION_SET=feedback SES_FEEDBACK_WINDOW=0s": 0, "SES_FEEDBACK_WINDOW=20s": 20 * time.Second,
	} {
		got, err := config.ReadDispatcher(append(strings.Fields(set), database, redis))
		if err != nil || got.Window() != want {
			t.Errorf("%s: %s, %v", set, got.Window(), err)
		}
	}
	if _, err := config.ReadDispatcher([]string{database, redis, "SES_FEEDBACK_WINDOW=2h"}); err == nil || !strings.Contains(err.Error(), "SES_FEEDBACK_WINDOW: must be 0s to 1h") {
		t.Error(err)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	dispatcher := func(environ []string) error { _, err := config.ReadDispatcher(environ); return err }
	worker := func(environ []string) error { _, err := config.ReadWorker(environ); return err }
	tests := []struct {
		name    string
		read    func([]string) error
		environ []string
		want    []string // beginnings of the lines, in any order
	}{
		{"nothing set", dispatcher, nil, []string{"DATABASE_URL: must be set", "REDIS_URL: must be set"}},
		{"set to nothing", dispatcher, []string{"DATABASE_URL=", redis}, []string{"DATABASE_URL: must be set"}},
		{
			"unreadable values", worker,
			[]string{database, redis, "WORKER_CONCURRENCY=ten", "EMAIL_TTL=1 day", "EMAIL_BACKOFF=1s,-5s", "MONITORING_WRITABLE=perhaps", "WEBHOOK_REFUSED_NETWORKS=203.0.113.9/24"},
			[]string{
				`WORKER_CONCURRENCY: must be a whole number: "ten"`, "EMAIL_TTL: must be a duration such as 250ms",
				"EMAIL_BACKOFF: must be durations such as 1s,5s,30s", "MONITORING_WRITABLE: must be true or false",
				`WEBHOOK_REFUSED_NETWORKS: "203.0.113.9/24" has bits set after its prefix; the network is 203.0.113.0/24`,
			},
		},
		{
			"values out of range", dispatcher,
			[]string{
				"DATABASE_URL=mysql://gateway:hunter2@db", "REDIS_URL=hunter2", "RABBITMQ_URL=http://mq", "DATABASE_LISTEN_URL=db",
				"LOG_LEVEL=loud", "OTEL_TRACES_SAMPLER=hunter2", "SES_MAX_SEND_RATE=NaN", "EMAIL_MAX_ATTEMPTS=0",
				"DISPATCHER_ADDR=9091", "OUTBOX_POLL_INTERVAL=0s",
			},
			[]string{
				"DATABASE_URL: must be a URL beginning with postgres://", "REDIS_URL: must be a URL", "RABBITMQ_URL: must be a URL",
				"DATABASE_LISTEN_URL: must be a URL", "LOG_LEVEL: must be debug", "OTEL_TRACES_SAMPLER: must be always_on",
				"SES_MAX_SEND_RATE: must be greater than 0", "EMAIL_MAX_ATTEMPTS: must be 1 to 100",
				"DISPATCHER_ADDR: must be host:port", "OUTBOX_POLL_INTERVAL: must be 10ms to 1m",
			},
		},
		{"a deadline that has passed", dispatcher, []string{database, redis, "EMAIL_TTL=-1h"}, []string{"EMAIL_TTL: must be 1m to 720h"}},
		{"no deadline", dispatcher, []string{database, redis, "EMAIL_TTL=0s"}, []string{"EMAIL_TTL: must be 1m to 720h"}},
		{"a deadline before the last try", dispatcher, []string{database, redis, "EMAIL_TTL=2m"}, []string{"EMAIL_TTL: must be longer than the waits"}},
		{"a deadline that the api refuses", worker, []string{database, redis, "EMAIL_TTL=9000h"}, []string{"EMAIL_TTL: must be 1m to 720h"}},
		{
			"values that contradict each other", worker,
			[]string{database, redis, "EMAIL_TTL=1m", "MONITORING_USER=ops", "SES_ENDPOINT=localhost:8005"},
			[]string{
				"EMAIL_TTL: must be longer than the waits of EMAIL_BACKOFF between 5 tries, 3m15s",
				"MONITORING_PASSWORD: must be set together with MONITORING_USER", "SES_ENDPOINT: must be an http",
			},
		},
		{
			"more emails in flight than a worker may have", worker,
			[]string{database, redis, "WORKER_CONCURRENCY=1025"},
			[]string{"WORKER_CONCURRENCY: must be 1 to 1024, or empty"},
		},
		{
			"the simulator in production", worker,
			[]string{database, redis, "ENVIRONMENT=Production", "AWS_REGION=sa-east-1", "SES_ENDPOINT=http://ses-sim:8005"},
			[]string{"SES_ENDPOINT: must be an https:// URL where ENVIRONMENT is production"},
		},
		{
			"no region in production", worker,
			[]string{database, redis, "ENVIRONMENT=production", "AWS_REGION="},
			[]string{"AWS_REGION: is required where ENVIRONMENT is production"},
		},
		{
			"links to this machine in production", worker,
			[]string{database, redis, "ENVIRONMENT=production", "AWS_REGION=sa-east-1", "PUBLIC_URL=https://127.0.0.1:8080"},
			[]string{"PUBLIC_URL: must be an https:// URL that readers of mail reach"},
		},
		{
			"links without TLS in production", worker,
			[]string{database, redis, "ENVIRONMENT=production", "AWS_REGION=sa-east-1", "PUBLIC_URL=http://mail.acme.example"},
			[]string{"PUBLIC_URL: must be an https:// URL that readers of mail reach"},
		},
		{
			"mailings without an address for their links", worker,
			[]string{database, redis, "ENVIRONMENT=production", "AWS_REGION=sa-east-1", "RABBITMQ_URL=amqp://mq/", unsubscribeKey},
			[]string{"PUBLIC_URL: is required where RABBITMQ_URL is set and ENVIRONMENT is production"},
		},
		{
			"mailings without a key for their links", worker,
			[]string{database, redis, "RABBITMQ_URL=amqp://mq/", "PUBLIC_URL=mail.acme.example", "MAILING_LEAD=0", "MX_RESOLVER=10.0.0.2", "RECIPIENTS_BATCH_SIZE=0"},
			[]string{
				"UNSUBSCRIBE_KEY: is required where RABBITMQ_URL is set", "PUBLIC_URL: must be an http", "MAILING_LEAD: must be 1 to",
				"MX_RESOLVER: must be host:port", "RECIPIENTS_BATCH_SIZE: must be 1 to 5000",
			},
		},
		{
			"what keeps the tables true", dispatcher,
			[]string{database, redis, "RESCUE_AFTER=0s", "MAILING_RECOVERY_INTERVAL=1ms", "MAILING_STALE_AFTER=1s", "STORAGE_URL=ftp://hunter2@files"},
			[]string{
				"RESCUE_AFTER: must be 1s to 1h", "MAILING_RECOVERY_INTERVAL: must be 1s to 1h", "MAILING_STALE_AFTER: must be 10s to 1h", "STORAGE_URL: ",
			},
		},
		{
			"an open dashboard that may delete", worker,
			[]string{database, redis, "MONITORING_WRITABLE=true"},
			[]string{"MONITORING_WRITABLE: needs MONITORING_USER"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := test.read(test.environ)
			if err == nil {
				t.Fatal("no error")
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error tells a password: %v", err)
			}
			lines := strings.Split(err.Error(), "\n")[1:]
			if len(lines) != len(test.want) {
				t.Errorf("%d mistakes, want %d", len(lines), len(test.want))
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), "\n"+want) {
					t.Errorf("no line begins with %q", want)
				}
			}
			if t.Failed() {
				t.Log(err)
			}
		})
	}
}
