// Package watch looks at the running gateway while it is broken: how much stands on
// Redis, how much memory is taken, and whether an address or a number stands in clear
// where it must not. It is used by the chaos run only.
package watch

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/scripts/chaos/judge"
	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/chaos/stage"
	"email-gateway/shared/service"
)

// Watch looks until it is stopped.
type Watch struct {
	// Seen may be read after Stop.
	Seen Seen

	stage  *stage.Stage
	book   *load.Book
	out    io.Writer
	redis  *redis.Client
	broker map[string]int64 // how much of each file of the broker was read
	cursor uint64           // of the keys on Redis
	leaks  []string         // by search alone
	sizes  []string         // by measure alone
	limits []dated          // of the window, by count alone
	held   map[string]int64 // tasks on each queue at the last look
	runs   [2]string        // the Redis process at the last two looks

	cancel  context.CancelFunc
	working sync.WaitGroup
}

// Seen is what was seen: peaks, and how much was looked through.
type Seen struct {
	Window   Window           `json:"window"`
	Retries  int64            `json:"retries"`  // waiting for a retry on one queue
	Archived int64            `json:"archived"` // on all queues
	Redis    int64            `json:"redisBytes"`
	RSS      map[string]int64 `json:"rssBytes"` // of each program

	Keys     int   `json:"keys"`        // of Redis, as often as each was looked at
	Broker   int64 `json:"brokerBytes"` // that RabbitMQ wrote
	Messages int   `json:"messages"`    // jobs of mailings among these
	Metrics  int   `json:"metrics"`     // answers of /metrics
}

const (
	// measureEvery is how often sizes are looked at, searchEvery how often secrets are.
	measureEvery = time.Second
	searchEvery  = 3 * time.Second
	// tellEvery is after how many measurements the progress is told.
	tellEvery = 10
)

// Start begins to look.
func Start(ctx context.Context, s *stage.Stage, book *load.Book, out io.Writer) (*Watch, error) {
	client, err := s.OpenRedis()
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	w := &Watch{
		stage: s, book: book, out: out, redis: client, broker: make(map[string]int64),
		Seen: Seen{RSS: make(map[string]int64)},
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.working.Go(func() { w.every(ctx, measureEvery, w.measure) })
	w.working.Go(func() { w.every(ctx, countEvery, w.count) })
	w.working.Go(func() { w.every(ctx, searchEvery, w.search) })
	return w, nil
}

func (w *Watch) every(ctx context.Context, interval time.Duration, look func(ctx context.Context, n int)) {
	for n := 1; service.Pause(ctx, interval) == nil; n++ {
		asking, cancel := context.WithTimeout(ctx, searchEvery)
		look(asking, n)
		cancel()
	}
}

// measure looks at sizes. What does not answer is down just now: that is the point.
func (w *Watch) measure(ctx context.Context, n int) {
	w.measureRedis(ctx)
	w.measurePrograms()
	if n%tellEvery == 0 {
		fmt.Fprintf(w.out, "%7d s  %d emails accepted, answers %v\n", n, w.book.Accepted(), w.book.Statuses())
	}
}

// Stop ends it.
func (w *Watch) Stop() {
	w.cancel()
	w.working.Wait()
	_ = w.redis.Close() // only read from
}

// Tell adds what should not have been seen, and Below what should have been looked at and
// was not.
func (w *Watch) Tell(j *judge.Judge) {
	w.tellSizes(j)
	for _, leak := range w.leaks {
		j.Find(judge.Leak, "%s", leak)
	}
}

// Below lists what was never looked at, though it was there: then its being clean says
// nothing.
func (w *Watch) Below(mailings int) []string {
	var list []string
	for what, seen := range map[string]bool{
		"key of Redis":            w.Seen.Keys > 0,
		"answer of /metrics":      w.Seen.Metrics > 0,
		"job on RabbitMQ's disks": w.Seen.Messages > 0 || mailings == 0,
	} {
		if !seen {
			list = append(list, "no "+what+" was looked at")
		}
	}
	return list
}
