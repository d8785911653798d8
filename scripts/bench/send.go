package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/shared/service"
)

func send() Section {
	return Section{Name: "send", What: "the worker, SES answering at once, beside a bare loop of the SDK's SendEmail", Run: runSend}
}

// sending is tasks on Redis and who takes them.
type sending struct {
	rig         *Rig
	table       *Table
	system      *System
	redis       *redis.Client
	ses         *SES
	concurrency int
	portion     int64 // how many tasks stand on Redis before a round
}

func runSend(ctx context.Context, r *Rig, t *Table) (err error) {
	s := &sending{rig: r, table: t, concurrency: 256, portion: scale[int64](r, 50_000, 4_000)}
	if s.redis, err = r.RedisClient(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	if s.ses, err = NewSES(ctx, 0, nil); err != nil {
		return err
	}
	s.system, err = r.NewSystem(ctx, map[string]string{
		"SES_ENDPOINT": s.ses.URL, "WORKER_CONCURRENCY": strconv.Itoa(s.concurrency),
		"SES_MAX_SEND_RATE": strconv.FormatInt(s.portion, 10), // the window holds a second of it: the portion
	})
	if err != nil {
		return err
	}
	t.Say("seeding %d emails", int64(t.Rounds()+1)*s.portion)
	if err := s.system.Seed(ctx, (t.Rounds()+1)*int(s.portion)); err != nil {
		return err
	}
	if err := s.system.Settle(ctx); err != nil {
		return err
	}
	bare, err := newBareClient(s.ses.URL, s.concurrency)
	if err != nil {
		return err
	}
	return t.Compare(ctx,
		Subject{Name: fmt.Sprintf("one worker, concurrency %d", s.concurrency), Unit: "emails/s", Measure: s.subject},
		Reference{
			Name: "bare sesv2 client loop, same concurrency", Budget: 0.3, Moonshot: 0.5,
			Measure: func(ctx context.Context) (float64, error) { return bare.loop(ctx, int(s.portion)) },
		},
	)
}

// subject is the rate of a worker that finds all its tasks on Redis, once it is at work
// and until a tenth is left.
func (s *sending) subject(ctx context.Context) (float64, error) {
	if err := s.enqueue(ctx); err != nil {
		return 0, err
	}
	if err := s.system.Checkpoint(ctx); err != nil {
		return 0, err
	}
	before := s.ses.Taken()
	sent, err := s.sent(ctx)
	if err != nil {
		return 0, err
	}
	p, err := s.system.Start(ctx, "worker", map[string]string{"SES_MAX_SEND_RATE": strconv.Itoa(sendRate)})
	if err != nil {
		return 0, err
	}
	first, err := s.await(ctx, before+s.portion/8)
	if err != nil {
		return 0, err
	}
	m := newMeter(s.rig, []*Program{p}, s.rig.Postgres, s.rig.Redis)
	if err := m.start(); err != nil {
		return 0, err
	}
	last, err := s.await(ctx, before+s.portion*9/10)
	if err != nil {
		return 0, err
	}
	if err := m.stop(); err != nil {
		return 0, err
	}
	usage, err := p.Usage()
	if err := errors.Join(err, p.Stop(ctx)); err != nil {
		return 0, err
	}
	m.record(s.table, "", "email", float64(last-first))
	s.table.Record(Quantity{Name: "most memory, worker", Unit: "MB"}, float64(usage.Peak)/1e6)
	now, err := s.sent(ctx)
	if err != nil {
		return 0, err
	}
	if taken := s.ses.Taken() - before; now-sent != taken {
		return 0, fmt.Errorf("SES took %d emails, but %d rows are SENT", taken, now-sent)
	}
	return float64(last-first) / m.Length.Seconds(), nil
}

// enqueue lets a dispatcher put the portion on Redis, and stops it again.
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

// await returns when SES has taken so many emails, and how many it has then.
func (s *sending) await(ctx context.Context, emails int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		taken := s.ses.Taken()
		if taken >= emails {
			return taken, nil
		}
		if err := service.Pause(ctx, 5*time.Millisecond); err != nil {
			return 0, fmt.Errorf("wait for %d emails at SES, it has taken %d: %w", emails, taken, err)
		}
	}
}

func (s *sending) close(ctx context.Context) error {
	errs := []error{s.rig.stopPrograms(ctx), s.rig.EmptyRedis(ctx), s.redis.Close()}
	if s.system != nil {
		errs = append(errs, s.system.Close(ctx))
	}
	if s.ses != nil {
		errs = append(errs, s.ses.Close())
	}
	return errors.Join(errs...)
}
