package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/config"
)

const (
	database = "DATABASE_URL=postgres://gateway:hunter2@db/gateway"
	redis    = "REDIS_URL=redis://:hunter2@redis:6379/0"
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
			Environment: "development", LogLevel: "info", Concurrency: 10, SendRate: 100, MaxAttempts: 5,
		},
		Addr: "127.0.0.1:9091", ListenURL: "postgres://gateway:hunter2@db/gateway", PollInterval: 250 * time.Millisecond,
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
			Environment: "development", LogLevel: "info", Concurrency: 10, SendRate: 100, MaxAttempts: 5,
		},
		Addr: "127.0.0.1:9092", Region: "us-east-1",
		Backoff: email.Backoff{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute},
		TTL:     24 * time.Hour,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestReadWorker_ReadsEveryVariable(t *testing.T) {
	t.Parallel()
	got, err := config.ReadWorker([]string{
		database, "REDIS_URL=redis-sentinel://a:26379,b:26379/1?master=mymaster", "RABBITMQ_URL=amqp://mq/",
		"ENVIRONMENT=production", "LOG_LEVEL=debug", "WORKER_ADDR=:80", "WORKER_CONCURRENCY=50", "SES_MAX_SEND_RATE=14.5",
		"SES_ENDPOINT=http://127.0.0.1:8005", "SES_CONFIGURATION_SET=feedback", "AWS_REGION=sa-east-1",
		"EMAIL_MAX_ATTEMPTS=3", "EMAIL_BACKOFF=10ms, 20ms", "EMAIL_TTL=1h",
		"MONITORING_USER=ops", "MONITORING_PASSWORD=hunter2", "MONITORING_WRITABLE=true",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Worker{
		Process: config.Process{
			DatabaseURL: "postgres://gateway:hunter2@db/gateway", RedisURL: "redis-sentinel://a:26379,b:26379/1?master=mymaster",
			RabbitMQURL: "amqp://mq/", Environment: "production", LogLevel: "debug", Concurrency: 50, SendRate: 14.5, MaxAttempts: 3,
		},
		Addr: ":80", Endpoint: "http://127.0.0.1:8005", ConfigurationSet: "feedback", Region: "sa-east-1",
		Backoff: email.Backoff{10 * time.Millisecond, 20 * time.Millisecond}, TTL: time.Hour,
		MonitoringUser: "ops", MonitoringPassword: "hunter2", MonitoringWritable: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
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
			[]string{database, redis, "WORKER_CONCURRENCY=ten", "EMAIL_TTL=1 day", "EMAIL_BACKOFF=1s,-5s", "MONITORING_WRITABLE=perhaps"},
			[]string{
				`WORKER_CONCURRENCY: must be a whole number: "ten"`, "EMAIL_TTL: must be a duration such as 250ms",
				"EMAIL_BACKOFF: must be durations such as 1s,5s,30s", "MONITORING_WRITABLE: must be true or false",
			},
		},
		{
			"values out of range", dispatcher,
			[]string{
				"DATABASE_URL=mysql://gateway:hunter2@db", "REDIS_URL=hunter2", "RABBITMQ_URL=http://mq", "DATABASE_LISTEN_URL=db",
				"LOG_LEVEL=loud", "WORKER_CONCURRENCY=0", "SES_MAX_SEND_RATE=NaN", "EMAIL_MAX_ATTEMPTS=0",
				"DISPATCHER_ADDR=9091", "OUTBOX_POLL_INTERVAL=0s",
			},
			[]string{
				"DATABASE_URL: must be a URL beginning with postgres://", "REDIS_URL: must be a URL", "RABBITMQ_URL: must be a URL",
				"DATABASE_LISTEN_URL: must be a URL", "LOG_LEVEL: must be debug", "WORKER_CONCURRENCY: must be 1 to 1024",
				"SES_MAX_SEND_RATE: must be greater than 0", "EMAIL_MAX_ATTEMPTS: must be 1 to 100",
				"DISPATCHER_ADDR: must be host:port", "OUTBOX_POLL_INTERVAL: must be 10ms to 1m",
			},
		},
		{
			"values that contradict each other", worker,
			[]string{database, redis, "EMAIL_TTL=1m", "MONITORING_USER=ops", "SES_ENDPOINT=localhost:8005"},
			[]string{
				"EMAIL_TTL: must be longer than the waits of EMAIL_BACKOFF between 5 tries, 3m15s",
				"MONITORING_PASSWORD: must be set together with MONITORING_USER", "SES_ENDPOINT: must be an http",
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
