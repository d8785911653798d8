package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/reference"
	"email-gateway/scripts/bench/results"
	"email-gateway/shared/service"
)

func send() Section {
	return Section{Name: "send", What: "the worker, SES answering at once, compared with a bare loop of the SDK's SendEmail", Run: runSend}
}

// sending holds tasks on Redis and the environment of the workers that take them.
type sending struct {
	environment *environment.Environment
	table       *results.Table
	system      *environment.System
	redis       *redis.Client
	ses         *environment.SES
	concurrency int   // of each worker
	portion     int64 // number of tasks on Redis before a round
	end         int64 // number of emails at SES when a tenth of the portion is left
}

func runSend(ctx context.Context, r *environment.Environment, t *results.Table) (err error) {
	s := &sending{environment: r, table: t, concurrency: 256, portion: environment.Scale[int64](r, 50_000, 4_000)}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	if err := s.open(ctx, t.Rounds()+1, nil); err != nil {
		return err
	}
	bare, err := reference.NewBareClient(s.ses.URL, s.concurrency)
	if err != nil {
		return err
	}
	return t.Compare(ctx,
		results.Subject{Name: fmt.Sprintf("one worker, concurrency %d", s.concurrency), Unit: "emails/s", Measure: s.subject},
		results.Reference{
			Name: "bare sesv2 client loop, same concurrency", Budget: 0.36, Moonshot: 0.5,
			Measure: func(ctx context.Context) (float64, error) { return bare.Loop(ctx, int(s.portion)) },
		},
	)
}

// open creates the system and SES, and seeds that number of portions.
func (s *sending) open(ctx context.Context, portions int, onSend func([]byte)) (err error) {
	if s.redis, err = s.environment.RedisClient(); err != nil {
		return err
	}
	if s.ses, err = environment.NewSES(0, onSend); err != nil {
		return err
	}
	s.system, err = s.environment.NewSystem(ctx, map[string]string{
		"SES_ENDPOINT": s.ses.URL, "WORKER_CONCURRENCY": strconv.Itoa(s.concurrency),
		"SES_MAX_SEND_RATE": strconv.FormatInt(s.portion*4/3, 10), // the window is three quarters of a second of it: the portion
	})
	if err != nil {
		return err
	}
	emails := portions * int(s.portion)
	s.table.Say("seeding %d emails", emails)
	if err := s.system.Seed(ctx, emails); err != nil {
		return err
	}
	return s.system.Vacuum(ctx)
}

// subject measures the rate and the resource usage of one worker.
func (s *sending) subject(ctx context.Context) (rate float64, err error) {
	err = s.with(ctx, 1, func(workers []*environment.Program) error {
		m := environment.NewMeter(workers, s.environment.Postgres, s.environment.Redis)
		if err := m.Start(); err != nil {
			return err
		}
		emails, err := s.finish(ctx)
		if err := errors.Join(err, m.Stop()); err != nil {
			return err
		}
		usage, err := workers[0].Usage()
		if err != nil {
			return err
		}
		m.Record(s.table, "", "email", float64(emails))
		s.table.Record(results.Quantity{Name: "most memory, worker", Unit: "MB"}, float64(usage.Peak)/1e6)
		rate = float64(emails) / m.Length.Seconds()
		return nil
	})
	return rate, err
}

// with puts a portion on Redis, starts workers for it, and calls measure when they are sending.
// Afterwards each email at SES must be SENT.
func (s *sending) with(ctx context.Context, workers int, measure func([]*environment.Program) error) error {
	if err := s.enqueue(ctx); err != nil {
		return err
	}
	if err := s.system.Checkpoint(ctx); err != nil {
		return err
	}
	before, err := s.sent(ctx)
	if err != nil {
		return err
	}
	taken := s.ses.Taken()
	s.end = taken + s.portion*9/10
	running := make([]*environment.Program, workers)
	for i := range running {
		if running[i], err = s.system.Start(ctx, "worker", map[string]string{"SES_MAX_SEND_RATE": strconv.Itoa(environment.SendRate)}); err != nil {
			return err
		}
	}
	if _, err := s.await(ctx, taken+s.portion/8); err != nil {
		return err
	}
	err = measure(running)
	for _, p := range running {
		err = errors.Join(err, p.Stop(ctx))
	}
	if err != nil {
		return err
	}
	now, err := s.sent(ctx)
	if err != nil {
		return err
	}
	if n := s.ses.Taken() - taken; now-before != n {
		return fmt.Errorf("SES received %d emails, but %d rows are SENT", n, now-before)
	}
	return nil
}

// finish waits until a tenth of the portion is left, and returns how many were sent meanwhile.
func (s *sending) finish(ctx context.Context) (emails int64, err error) {
	first := s.ses.Taken()
	last, err := s.await(ctx, s.end)
	return last - first, err
}

// enqueue runs a dispatcher until the portion is on Redis.
func (s *sending) enqueue(ctx context.Context) error {
	p, err := s.system.Start(ctx, "dispatcher", nil)
	if err != nil {
		return err
	}
	_, err = awaitTasks(ctx, s.redis, s.portion)
	return errors.Join(err, p.Stop(ctx))
}

func (s *sending) sent(ctx context.Context) (int64, error) {
	return s.system.Count(ctx, "SELECT count(*) FROM email_outbox WHERE status = 'SENT'")
}

// await waits until SES has received that number of emails, and returns the actual number.
func (s *sending) await(ctx context.Context, emails int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		taken := s.ses.Taken()
		if taken >= emails {
			return taken, nil
		}
		if err := service.Pause(ctx, 5*time.Millisecond); err != nil {
			return 0, fmt.Errorf("wait for %d emails at SES, it has received %d: %w", emails, taken, err)
		}
	}
}

func (s *sending) close(ctx context.Context) error {
	errs := []error{s.environment.StopPrograms(ctx), s.environment.EmptyRedis(ctx)}
	if s.redis != nil {
		errs = append(errs, s.redis.Close())
	}
	if s.system != nil {
		errs = append(errs, s.system.Close(ctx))
	}
	if s.ses != nil {
		errs = append(errs, s.ses.Close())
	}
	return errors.Join(errs...)
}
