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

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/shared/email"
	"email-gateway/shared/service"
)

const (
	// refusalPause is the pause of a goroutine after a refused request.
	refusalPause = 2 * time.Millisecond
	// settleTime is the timeout for empty queues between two resources.
	settleTime = time.Minute
)

// scenario is the measurement of one resource, with a new company that misuses it.
type scenario struct {
	resource
	cluster *cluster.Cluster
	short   bool
	length  time.Duration
	name    string // of the company
	company uuid.UUID
	domain  string // domain of the company's recipients
	client  *client
	ids     []uuid.UUID // of emails that prepare submitted

	mu   sync.Mutex
	done map[string]int
	open []*sql.Tx // until rollBack
}

func newScenario(ctx context.Context, s *cluster.Cluster, cfg Config, r resource) (*scenario, error) {
	sc := &scenario{
		resource: r, cluster: s, short: cfg.Short, length: cfg.measure(),
		name: r.name, domain: r.name + ".example", done: make(map[string]int),
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

// scale returns the count for the full or the short run.
func (s *scenario) scale(whole, short int) int {
	if s.short {
		return short
	}
	return whole
}

// run measures the quiet company while the resource is misused, and reverts the misuse.
func (s *scenario) run(ctx context.Context, q *quiet) (seen Measurement, err error) {
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

// settle suspends the company, which stops its emails, and waits until the queues have no tasks.
func (s *scenario) settle(ctx context.Context) (err error) {
	if err := s.cluster.Suspend(ctx, s.name); err != nil {
		return err
	}
	client, err := s.cluster.OpenRedis()
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

// tasks counts the pending and active tasks on the email queues.
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

// count counts an action of the misusing company.
func (s *scenario) count(what string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[what] += n
}

func (s *scenario) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.done)
}

// generateLoad sends requests with that concurrency until ctx ends, or until n were sent if n is not 0,
// and counts the responses.
func (s *scenario) generateLoad(ctx context.Context, concurrency, n int, make func(n int) request) {
	var generating sync.WaitGroup
	numbers := feed(ctx, n)
	for range concurrency {
		generating.Go(func() {
			for number := range numbers {
				if s.ask(ctx, make(number)) >= http.StatusBadRequest {
					_ = service.Pause(ctx, refusalPause)
				}
			}
		})
	}
	generating.Wait()
}

// ask sends one request of the misusing company.
func (s *scenario) ask(ctx context.Context, r request) (status int) {
	got, err := s.client.do(ctx, r)
	if err != nil && ctx.Err() != nil {
		return http.StatusRequestTimeout // the misuse is over
	}
	s.count(fmt.Sprint(got.status), 1)
	if err != nil {
		return http.StatusRequestTimeout
	}
	return got.status
}

// feed counts from 0 until ctx ends, or up to n if n is not 0.
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

// mail returns an email of the misusing company; more sets further fields.
func (s *scenario) mail(n int, more map[string]any) request {
	to := fmt.Sprintf("pessoa%d@%s", n, s.domain)
	body := map[string]any{
		"to": to, "subject": "Oferta", "html": fmt.Sprintf("<p>%d</p>", n),
		"recipient": map[string]any{"externalId": fmt.Sprintf("pessoa-%d", n), "email": to},
	}
	maps.Copy(body, more)
	return request{method: http.MethodPost, path: "/v1/email/send", body: encode(body)}
}
