package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"email-gateway/scripts/chaos/checker"
	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/load"
	"email-gateway/shared/service"
)

// settler waits until the gateway is idle.
type settler struct {
	cluster *cluster.Cluster
	load    *load.Load
	records load.Records
	since   time.Time // the end of the run
	out     io.Writer

	unsettled, noisy, undelivered string // what was unfinished at the timeout
}

func newSettler(c *cluster.Cluster, l *load.Load, records load.Records, since time.Time, out io.Writer) *settler {
	return &settler{cluster: c, load: l, records: records, since: since, out: out}
}

const (
	// pollInterval is the polling interval, progressEvery the number of polls between two progress messages.
	pollInterval  = 500 * time.Millisecond
	progressEvery = 10
)

// settle waits until every email, mailing and recipient has a final state, and returns the time
// since the end of the run.
func (s *settler) settle(ctx context.Context, timeout time.Duration) time.Duration {
	took := s.await(ctx, timeout, &s.unsettled, s.unfinishedWork)
	fmt.Fprintf(s.out, "settled %.1f s after the run%s\n", took.Seconds(), unfinishedSuffix(s.unsettled))
	return took
}

// quiet waits until Redis holds no task that will run again, and SES has delivered its events: some
// arrive long after the email was sent.
func (s *settler) quiet(ctx context.Context, timeout time.Duration) time.Duration {
	took := s.await(ctx, timeout, &s.noisy, s.queuedWork)
	fmt.Fprintf(s.out, "queues empty %.1f s after the run%s\n", took.Seconds(), unfinishedSuffix(s.noisy))
	return took
}

// delivered waits until the readers of the events could read all of them, and the webhook endpoints have them.
func (s *settler) delivered(ctx context.Context, timeout time.Duration) time.Duration {
	took := s.await(ctx, timeout, &s.undelivered, s.undeliveredEvents)
	fmt.Fprintf(s.out, "events delivered %.1f s after the run%s\n", took.Seconds(), unfinishedSuffix(s.undelivered))
	return took
}

func unfinishedSuffix(problem string) string {
	if problem == "" {
		return ""
	}
	return ", unfinished: " + problem
}

// await polls until ask returns no problem, or until the timeout; an error counts as a problem.
func (s *settler) await(ctx context.Context, timeout time.Duration, last *string, ask func(context.Context) (string, error)) time.Duration {
	for n := 1; ; n++ {
		problem, err := ask(ctx)
		if err != nil {
			problem = err.Error()
		}
		*last = problem
		took := time.Since(s.since)
		if n%progressEvery == 0 && problem != "" {
			fmt.Fprintf(s.out, "%+7.1f s  %s\n", took.Seconds(), problem)
		}
		if problem == "" || took > timeout || service.Pause(ctx, pollInterval) != nil {
			return took
		}
	}
}

const unfinishedSQL = `
SELECT coalesce((SELECT string_agg(n || ' ' || target || ' ' || status, ', ') FROM (
    SELECT count(*) AS n, target, status FROM email_outbox
    WHERE status NOT IN ('SENT', 'FAILED', 'EXPIRED', 'CANCELLED', 'SUPPRESSED', 'PUBLISHED') GROUP BY target, status) o), '')
|| coalesce((SELECT '; ' || count(*) || ' recipients' FROM recipient_intakes HAVING count(*) > 0), '')
|| coalesce((SELECT string_agg('; mailing ' || id || ' ' || status, '') FROM mailings WHERE status NOT IN ('COMPLETED', 'CANCELLED') OR settling IS NOT NULL OR counted_at IS NULL), '')
|| coalesce((SELECT '; ' || count(*) || ' replays' FROM dead_letter_replays WHERE status = 'RUNNING' HAVING count(*) > 0), '')`

const stuckSQL = `SELECT count(*) FROM mailings WHERE id = $1 AND status IN ('FAILED', 'PAUSED')`

func (s *settler) unfinishedWork(ctx context.Context) (text string, err error) {
	if err := s.cluster.Database.QueryRowContext(ctx, unfinishedSQL).Scan(&text); err != nil {
		return "", fmt.Errorf("read unfinished rows: %w", err)
	}
	if text == "" {
		return "", nil
	}
	return text, s.resumeStuck(ctx)
}

const undeliveredSQL = `
SELECT coalesce((SELECT count(*) || ' rows of the feed without a position; ' FROM event_feed WHERE position IS NULL HAVING count(*) > 0), '')
|| coalesce((SELECT string_agg('endpoint ' || url || ' is ' || status || ', ' || open_deliveries || ' open deliveries, position ' || feed_position || '; ', '')
    FROM webhook_endpoints e
    WHERE status <> 'ENABLED' OR open_deliveries > 0 OR EXISTS (SELECT FROM event_feed f WHERE f.company_id = e.company_id AND f.position > e.feed_position)
        OR EXISTS (SELECT FROM event_feed f WHERE f.company_id = e.company_id AND f.position = e.feed_position AND e.feed_number < 4611686018427387904)), '')`

func (s *settler) undeliveredEvents(ctx context.Context) (text string, err error) {
	if err := s.cluster.Database.QueryRowContext(ctx, undeliveredSQL).Scan(&text); err != nil {
		return "", fmt.Errorf("read undelivered events: %w", err)
	}
	return text, nil
}

// resumeStuck resumes mailings whose job failed three times because of faults, or that an api
// paused after its tenant had stopped waiting for the response.
func (s *settler) resumeStuck(ctx context.Context) error {
	var errs []error
	for _, m := range s.records.Mailings {
		var stuck int
		if err := s.cluster.Database.QueryRowContext(ctx, stuckSQL, m.ID).Scan(&stuck); err != nil {
			return fmt.Errorf("read stuck mailings: %w", err)
		}
		if stuck > 0 {
			errs = append(errs, s.load.Resume(ctx, m))
		}
	}
	return errors.Join(errs...)
}

// queues counts the tasks on Redis, over a new connection: the last one may be dead.
func (s *settler) queues(ctx context.Context) (queues []checker.Queue, err error) {
	client, err := s.cluster.OpenRedis()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	return checker.Queues(ctx, client)
}

func (s *settler) queuedWork(ctx context.Context) (string, error) {
	queues, err := s.queues(ctx)
	if err != nil {
		return "", err
	}
	var text string
	for _, q := range queues {
		if q.Tasks() > 0 {
			text += fmt.Sprintf("%s has %d pending, %d active and %d retry tasks; ", q.Name, q.Pending, q.Active, q.Retry)
		}
	}
	if events := s.cluster.Mail.Simulator.Events().Pending; events > 0 {
		text += fmt.Sprintf("SES has undelivered events of %d emails", events)
	}
	return text, nil
}

// addFindings adds a finding for work that did not finish in time.
func (s *settler) addFindings(f *checker.Findings, settled, quiet, delivered time.Duration) {
	if s.unsettled != "" {
		f.Add(checker.Unfinished, "not settled after %.0f s: %s", settled.Seconds(), s.unsettled)
	}
	if s.noisy != "" {
		f.Add(checker.Unfinished, "queues not empty after %.0f s: %s", quiet.Seconds(), s.noisy)
	}
	if s.undelivered != "" {
		f.Add(checker.Unfinished, "events not delivered after %.0f s: %s", delivered.Seconds(), s.undelivered)
	}
}
