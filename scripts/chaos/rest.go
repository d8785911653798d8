package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"email-gateway/scripts/chaos/judge"
	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/chaos/stage"
	"email-gateway/shared/service"
)

// rest waits until the gateway has nothing left to do.
type rest struct {
	stage *stage.Stage
	load  *load.Load
	notes load.Notes
	since time.Time // the end of the run
	out   io.Writer

	unsettled, noisy string // what was still at work when patience ended
}

func newRest(s *stage.Stage, l *load.Load, notes load.Notes, since time.Time, out io.Writer) *rest {
	return &rest{stage: s, load: l, notes: notes, since: since, out: out}
}

const (
	// look is how often it is looked, tellEvery after how many looks the progress is told.
	look      = 500 * time.Millisecond
	tellEvery = 10
)

// settle waits until every email, mailing and recipient has come to its end, and says how
// long after the end of the run that was.
func (r *rest) settle(ctx context.Context, patience time.Duration) time.Duration {
	took := r.await(ctx, patience, &r.unsettled, r.atWork)
	fmt.Fprintf(r.out, "settled %.1f s after the run%s\n", took.Seconds(), told(r.unsettled))
	return took
}

// quiet waits until Redis holds no task that will run again, and SES has delivered its events:
// some come long after the email was sent.
func (r *rest) quiet(ctx context.Context, patience time.Duration) time.Duration {
	took := r.await(ctx, patience, &r.noisy, r.standing)
	fmt.Fprintf(r.out, "queues empty %.1f s after the run%s\n", took.Seconds(), told(r.noisy))
	return took
}

func told(problem string) string {
	if problem == "" {
		return ""
	}
	return ": not yet: " + problem
}

// await asks until there is nothing, or until patience is over; an error counts as
// something.
func (r *rest) await(ctx context.Context, patience time.Duration, last *string, ask func(context.Context) (string, error)) time.Duration {
	for n := 1; ; n++ {
		problem, err := ask(ctx)
		if err != nil {
			problem = err.Error()
		}
		*last = problem
		took := time.Since(r.since)
		if n%tellEvery == 0 && problem != "" {
			fmt.Fprintf(r.out, "%+7.1f s  %s\n", took.Seconds(), problem)
		}
		if problem == "" || took > patience || service.Pause(ctx, look) != nil {
			return took
		}
	}
}

const atWorkSQL = `
SELECT coalesce((SELECT string_agg(n || ' ' || target || ' ' || status, ', ') FROM (
    SELECT count(*) AS n, target, status FROM email_outbox
    WHERE status NOT IN ('SENT', 'FAILED', 'EXPIRED', 'CANCELLED', 'SUPPRESSED', 'PUBLISHED') GROUP BY target, status) o), '')
|| coalesce((SELECT '; ' || count(*) || ' recipients' FROM recipient_intakes HAVING count(*) > 0), '')
|| coalesce((SELECT string_agg('; mailing ' || id || ' ' || status, '') FROM mailings WHERE status NOT IN ('COMPLETED', 'CANCELLED') OR settling IS NOT NULL OR counted_at IS NULL), '')
|| coalesce((SELECT '; ' || count(*) || ' replays' FROM dead_letter_replays WHERE status = 'RUNNING' HAVING count(*) > 0), '')`

const stuckSQL = `SELECT count(*) FROM mailings WHERE id = $1 AND status IN ('FAILED', 'PAUSED')`

func (r *rest) atWork(ctx context.Context) (text string, err error) {
	if err := r.stage.Database.QueryRowContext(ctx, atWorkSQL).Scan(&text); err != nil {
		return "", fmt.Errorf("look for what is at work: %w", err)
	}
	if text == "" {
		return "", nil
	}
	return text, r.resumeStuck(ctx)
}

// resumeStuck lets mailings go on whose job failed three times while everything was
// broken, or that an api paused after its tenant had stopped waiting for the answer.
func (r *rest) resumeStuck(ctx context.Context) error {
	var errs []error
	for _, m := range r.notes.Mailings {
		var stuck int
		if err := r.stage.Database.QueryRowContext(ctx, stuckSQL, m.ID).Scan(&stuck); err != nil {
			return fmt.Errorf("look for stuck mailings: %w", err)
		}
		if stuck > 0 {
			errs = append(errs, r.load.Resume(ctx, m))
		}
	}
	return errors.Join(errs...)
}

// queues measures what stands on Redis, over a connection of its own: the last one may be
// dead.
func (r *rest) queues(ctx context.Context) (queues []judge.Queue, err error) {
	client, err := r.stage.OpenRedis()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	return judge.Queues(ctx, client)
}

func (r *rest) standing(ctx context.Context) (string, error) {
	queues, err := r.queues(ctx)
	if err != nil {
		return "", err
	}
	var text string
	for _, q := range queues {
		if q.Tasks() > 0 {
			text += fmt.Sprintf("%s has %d pending, %d active, %d for a retry; ", q.Name, q.Pending, q.Active, q.Retry)
		}
	}
	if events := r.stage.Mail.Simulator.Events().Pending; events > 0 {
		text += fmt.Sprintf("SES has events of %d emails to deliver", events)
	}
	return text, nil
}

// tell adds what did not come to rest in time.
func (r *rest) tell(j *judge.Judge, settled, quiet time.Duration) {
	if r.unsettled != "" {
		j.Find(judge.Leftover, "not settled after %.0f s: %s", settled.Seconds(), r.unsettled)
	}
	if r.noisy != "" {
		j.Find(judge.Leftover, "not quiet after %.0f s: %s", quiet.Seconds(), r.noisy)
	}
}
