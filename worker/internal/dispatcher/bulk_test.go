package dispatcher_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/logtest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue"
)

// carrier is a broker for bulk jobs that keeps what is published, or is down.
type carrier struct {
	away  bool
	tasks chan queue.Task
}

func (c carrier) Publish(_ context.Context, task queue.Task) (queue.Placed, error) {
	if c.away {
		return 0, errors.New("connection refused")
	}
	c.tasks <- task
	return queue.Queued, nil
}

func (c carrier) Reserve(_ context.Context, _ string, window, limit int) (queue.Room, error) {
	return queue.Room{Depth: len(c.tasks), Granted: min(limit, window-len(c.tasks))}, nil
}

func (c carrier) Release(context.Context, string) error { return nil }

// job inserts a bulk job of the company.
func (b *bench) job(t *testing.T, company uuid.UUID, target, lane, payload string) uuid.UUID {
	t.Helper()
	id := uuid.New()
	b.change(t, `INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, expires_at)
		SELECT $1, $2, id, $3, 'r', $4, 'infinity' FROM dispatch_lanes WHERE company_id = $2 AND queue = $5`, id, company, target, payload, lane)
	return id
}

// A dispatcher without RABBITMQ_URL says that bulk jobs wait, unless another one publishes them: then none is due for long.
func TestDispatch_BulkJobsWithoutBroker(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		due  string
		want int
	}{"for a minute": {"1 min", 1}, "since now": {"0 s", 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			job := b.job(t, b.Company(t), email.TargetMailing, email.QueueMailings, `{"mailingId": "m-1", "generation": 1}`)
			b.change(t, `UPDATE email_outbox SET next_at = now() - $2::interval, due_at = now() - $2::interval WHERE id = $1`, job, tt.due)
			p := b.params()
			registry := prometheus.NewRegistry()
			p.Registry = registry
			b.dispatch(t, p)
			waittest.Until(t, "the backlog is measured", func() bool {
				families, err := registry.Gather()
				for _, f := range families {
					for _, m := range f.GetMetric() {
						if f.GetName() == "outbox_oldest_due_seconds" && m.GetGauge().GetValue() > 0 {
							return err == nil
						}
					}
				}
				return false
			})
			if n := b.log.Count("RABBITMQ_URL is not set for this dispatcher"); n != tt.want {
				t.Errorf("%d lines, want %d", n, tt.want)
			}
		})
	}
}

func TestDispatch_BulkJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	mailing := b.job(t, company, email.TargetMailing, email.QueueMailings, `{"mailingId": "m-1", "generation": 1}`)
	person := b.job(t, company, email.TargetRecipients, email.QueueRecipients, `{"email": "ana@example.com"}`)
	p := b.params()
	broker := carrier{tasks: make(chan queue.Task, 10)}
	p.Bulk = broker
	b.dispatch(t, p)
	b.expectStatus(t, mailing, "PUBLISHED")
	b.expectStatus(t, person, "PUBLISHED")
	got := map[string]string{}
	for range 2 {
		task := <-broker.tasks
		var body map[string]any
		if err := json.Unmarshal(task.Payload, &body); err != nil {
			t.Fatal(err)
		}
		if task.Queue == email.QueueMailings {
			got[task.ID] = body["mailingId"].(string)
		} else {
			got[task.ID] = body["outboxId"].(string)
			if len(body) != 1 {
				t.Errorf("a recipient's message carries %v", body)
			}
		}
	}
	if diff := cmp.Diff(map[string]string{mailing.String(): "m-1", person.String(): person.String()}, got); diff != "" {
		t.Error(diff)
	}
}

// Bulk jobs wait in Postgres while their broker is down or not configured, and do not delay emails.
func TestDispatch_BrokerOutage(t *testing.T) {
	t.Parallel()
	for name, broker := range map[string]queue.Publisher{"away": carrier{away: true}, "none": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			company := b.Company(t)
			job := b.job(t, company, email.TargetMailing, email.QueueMailings, `{}`)
			p := b.params()
			p.Bulk = broker
			b.dispatch(t, p)
			start := time.Now()
			for range 20 {
				b.expectStatus(t, b.Accept(t, company, nil), email.Enqueued)
			}
			if took := time.Since(start); took > timeout/2 {
				t.Errorf("20 emails took %s", took)
			}
			if got := b.status(t, job); got != email.Pending {
				t.Errorf("the job is %s", got)
			}
		})
	}
}

// mute is a broker that accepts bulk jobs and does not confirm them in time.
type mute struct{ carrier }

func (m mute) Publish(ctx context.Context, task queue.Task) (queue.Placed, error) {
	m.tasks <- task
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

// A job whose confirm is late may be queued: it is not published again before its lease ends.
func TestDispatch_LateConfirm(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.job(t, b.Company(t), email.TargetMailing, email.QueueMailings, `{}`)
	var log logtest.Buffer
	p := b.params()
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	broker := mute{carrier{tasks: make(chan queue.Task, 10)}}
	p.Bulk = broker
	b.dispatch(t, p)
	waittest.Until(t, "the batch is over", func() bool { return log.Count("publish 1 tasks") > 0 })
	var leased bool
	err := b.SQL.QueryRowContext(t.Context(), `SELECT status = 'PENDING' AND enqueued_at IS NOT NULL AND next_at > now() FROM email_outbox WHERE id = $1`, id).Scan(&leased)
	if err != nil || !leased {
		t.Errorf("the job is leased: %v, %v", leased, err)
	}
	if n := len(broker.tasks); n != 1 {
		t.Errorf("published %d times", n)
	}
}

// halfMute does not confirm the first job, and cannot send the others.
type halfMute struct {
	mute
	first uuid.UUID
}

func (m halfMute) Publish(ctx context.Context, task queue.Task) (queue.Placed, error) {
	if task.ID != m.first.String() {
		<-ctx.Done()
		return 0, fmt.Errorf("%w: %w", queue.ErrNotPublished, context.Cause(ctx))
	}
	return m.mute.Publish(ctx, task)
}

// A stop releases the jobs that were certainly not published. One that may be queued keeps its
// lease.
func TestDispatch_StopReleasesUnsentJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	company := b.Company(t)
	first := b.job(t, company, email.TargetMailing, email.QueueMailings, `{}`)
	b.job(t, company, email.TargetMailing, email.QueueMailings, `{}`)
	b.change(t, `UPDATE email_outbox SET next_at = now() - interval '1 h'`)
	p := b.params()
	broker := halfMute{mute{carrier{tasks: make(chan queue.Task, 10)}}, first}
	p.Bulk = broker
	stop := b.dispatch(t, p)
	<-broker.tasks
	stop()
	rows := map[bool]bool{}
	found, err := b.SQL.QueryContext(t.Context(), `SELECT id = $1, status = 'PENDING' AND enqueued_at IS NULL AND next_at < now() - interval '59 min' FROM email_outbox`, first)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var unconfirmed, released bool
		if err := found.Scan(&unconfirmed, &released); err != nil {
			t.Fatal(err)
		}
		rows[unconfirmed] = released
	}
	if diff := cmp.Diff(map[bool]bool{true: false, false: true}, rows); diff != "" || found.Err() != nil {
		t.Errorf("released by whether it is in doubt: %s, %v", diff, found.Err())
	}
}

// A company with many mailings does not delay another company's mailing by all of its jobs: few are
// on the queue, and companies take turns.
func TestDispatch_MailingsRoundRobin(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	many, one := b.Company(t), b.Company(t)
	for range 300 {
		b.job(t, many, email.TargetMailing, email.QueueMailings, `{"mailingId": "many", "generation": 1}`)
	}
	p := b.params()
	broker := carrier{tasks: make(chan queue.Task, 400)}
	p.Bulk = broker
	b.dispatch(t, p)
	for len(broker.tasks) == 0 {
		<-time.After(time.Millisecond)
	}
	b.job(t, one, email.TargetMailing, email.QueueMailings, `{"mailingId": "one", "generation": 1}`)
	for n := 1; ; n++ {
		var job struct{ MailingID string }
		task := <-broker.tasks
		if err := json.Unmarshal(task.Payload, &job); err != nil {
			t.Fatal(err)
		}
		if job.MailingID == "one" {
			t.Logf("it was job number %d", n)
			return
		}
		if n == 200 {
			t.Fatal("another company's mailing waits for 200 jobs")
		}
		<-time.After(10 * time.Millisecond) // a job takes a moment
	}
}
