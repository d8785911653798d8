package neighbours

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"email-gateway/scripts/chaos/stage"
	"email-gateway/shared/email"
	"email-gateway/shared/service"
)

const (
	// refusalPause is how long a request that was refused keeps its hand from the next one.
	refusalPause = 2 * time.Millisecond
	// settleTime bounds the wait between two resources until the queues are empty.
	settleTime = time.Minute
)

// scene is one resource's measurement, with a company of its own that misuses the resource.
type scene struct {
	resource
	stage   *stage.Stage
	short   bool
	length  time.Duration
	name    string // of the company
	company uuid.UUID
	domain  string // where the company's recipients are
	client  *client
	ids     []uuid.UUID // of emails that prepare made

	mu   sync.Mutex
	done map[string]int
	open []*sql.Tx // until rollBack
}

func newScene(ctx context.Context, s *stage.Stage, cfg Config, r resource, try int) (*scene, error) {
	sc := &scene{
		resource: r, stage: s, short: cfg.Short, length: cfg.measure(),
		name: fmt.Sprintf("%s %d", r.name, try), domain: fmt.Sprintf("%s-%d.example", r.name, try), done: make(map[string]int),
	}
	key, err := s.Key(ctx, sc.name, "aviso@"+sc.domain)
	if err != nil {
		return nil, err
	}
	sc.client = newClient(s.APIs()[0], key)
	if err := s.Database.QueryRowContext(ctx, `SELECT id FROM companies WHERE name = $1`, sc.name).Scan(&sc.company); err != nil {
		return nil, fmt.Errorf("find company: %w", err)
	}
	return sc, nil
}

// scale picks how much is misused.
func (s *scene) scale(whole, short int) int {
	if s.short {
		return short
	}
	return whole
}

// play misuses the resource while the quiet company is measured, and puts everything back.
func (s *scene) play(ctx context.Context, q *quiet) (seen Measurement, err error) {
	defer s.client.close()
	if s.prepare != nil {
		if err := s.prepare(ctx, s); err != nil {
			return seen, fmt.Errorf("prepare: %w", err)
		}
	}
	misusing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.misuse(misusing, s) }()
	seen, err = q.measure(ctx, s.length, s.uploads)
	stop()
	if misuse := <-ended; misuse != nil && !errors.Is(misuse, context.Canceled) {
		err = errors.Join(err, fmt.Errorf("misuse: %w", misuse))
	}
	if s.restore != nil {
		err = errors.Join(err, s.restore(ctx, s))
	}
	return seen, errors.Join(err, s.settle(ctx))
}

// settle suspends the company, which stops its emails, and waits until its tasks have left the
// queues.
func (s *scene) settle(ctx context.Context) (err error) {
	if err := s.stage.Suspend(ctx, s.name); err != nil {
		return err
	}
	client, err := s.stage.OpenRedis()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for deadline := time.Now().Add(settleTime); ; {
		waiting, err := tasks(ctx, client)
		if err != nil {
			return err
		}
		if waiting == 0 || time.Now().After(deadline) {
			return nil
		}
		if err := service.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// tasks counts what is ready or in work on the queues of emails.
func tasks(ctx context.Context, client *redis.Client) (n int64, err error) {
	for _, queue := range email.Queues() {
		for _, list := range []string{"pending", "active"} {
			length, err := client.LLen(ctx, "asynq:{"+queue+"}:"+list).Result()
			if err != nil {
				return 0, fmt.Errorf("count tasks: %w", err)
			}
			n += length
		}
	}
	return n, nil
}

// note counts something that the misusing company did.
func (s *scene) note(what string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[what] += n
}

func (s *scene) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.done)
}

// hammer makes requests with so many hands at once until ctx ends, or until n of them were made
// where n is not 0, and counts the answers.
func (s *scene) hammer(ctx context.Context, hands, n int, make func(n int) request) {
	var hammering sync.WaitGroup
	numbers := feed(ctx, n)
	for range hands {
		hammering.Go(func() {
			for number := range numbers {
				if s.ask(ctx, make(number)) >= http.StatusBadRequest {
					_ = service.Pause(ctx, refusalPause)
				}
			}
		})
	}
	hammering.Wait()
}

// ask makes one request of the misusing company.
func (s *scene) ask(ctx context.Context, r request) (status int) {
	got, err := s.client.do(ctx, r)
	if err != nil && ctx.Err() != nil {
		return http.StatusRequestTimeout // the misuse is over
	}
	s.note(fmt.Sprint(got.status), 1)
	if err != nil {
		return http.StatusRequestTimeout
	}
	return got.status
}

// feed counts from 0 until ctx ends, or up to n where n is not 0.
func feed(ctx context.Context, n int) <-chan int {
	numbers := make(chan int)
	go func() {
		defer close(numbers)
		for i := 0; n == 0 || i < n; i++ {
			select {
			case numbers <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	return numbers
}

// mail is an email of the misusing company; more sets further fields.
func (s *scene) mail(n int, more map[string]any) request {
	to := fmt.Sprintf("pessoa%d@%s", n, s.domain)
	body := map[string]any{
		"to": to, "subject": "Oferta", "html": fmt.Sprintf("<p>%d</p>", n),
		"recipient": map[string]any{"externalId": fmt.Sprintf("pessoa-%d", n), "email": to},
	}
	maps.Copy(body, more)
	return request{method: http.MethodPost, path: "/v1/email/send", body: encode(body)}
}
