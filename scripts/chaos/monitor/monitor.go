// Package monitor watches the gateway during a chaos run: the number of tasks on Redis, memory use,
// and leaks of addresses or CPFs in clear text. Only the chaos run uses it.
package monitor

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/scripts/chaos/checker"
	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/load"
	"email-gateway/shared/service"
)

// Monitor monitors until it is stopped.
type Monitor struct {
	// Seen may be read after Stop.
	Seen Seen

	cluster *cluster.Cluster
	ledger  *load.Ledger
	out     io.Writer
	redis   *redis.Client
	broker  map[string]int64 // how much of each file of RabbitMQ was read
	cursor  uint64           // of the scan of Redis keys
	leaks   []string         // written by search only
	sizes   []string         // written by measure only
	limits  []dated          // of the window, written by count only
	held    map[string]int64 // tasks on each queue at the last count
	drains  map[string]bool  // queues that were draining at the last count
	runs    [2]string        // run ids of Redis at the last two counts

	cancel  context.CancelFunc
	working sync.WaitGroup
}

// Seen are the peaks, and the amount of data searched.
type Seen struct {
	Window   Window           `json:"window"`
	Retries  int64            `json:"retries"`  // waiting for a retry on one queue
	Archived int64            `json:"archived"` // on all queues
	Redis    int64            `json:"redisBytes"`
	RSS      map[string]int64 `json:"rssBytes"` // of each program

	Keys     int   `json:"keys"`        // of Redis, counted for each search
	Broker   int64 `json:"brokerBytes"` // written by RabbitMQ
	Messages int   `json:"messages"`    // jobs of mailings among these
	Metrics  int   `json:"metrics"`     // responses of /metrics
}

const (
	// measureEvery is the interval of size measurements, searchEvery that of searches for leaks.
	measureEvery = time.Second
	searchEvery  = 3 * time.Second
	// progressEvery is the number of measurements between two progress messages.
	progressEvery = 10
)

// Start starts monitoring.
func Start(ctx context.Context, c *cluster.Cluster, ledger *load.Ledger, out io.Writer) (*Monitor, error) {
	client, err := c.OpenRedis()
	if err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	w := &Monitor{
		cluster: c, ledger: ledger, out: out, redis: client, broker: make(map[string]int64),
		Seen: Seen{RSS: make(map[string]int64)},
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.working.Go(func() { w.every(ctx, measureEvery, w.measure) })
	w.working.Go(func() { w.every(ctx, countEvery, w.count) })
	w.working.Go(func() { w.every(ctx, searchEvery, w.search) })
	return w, nil
}

func (m *Monitor) every(ctx context.Context, interval time.Duration, look func(ctx context.Context, n int)) {
	for n := 1; service.Pause(ctx, interval) == nil; n++ {
		asking, cancel := context.WithTimeout(ctx, searchEvery)
		look(asking, n)
		cancel()
	}
}

// measure measures sizes. It ignores errors: components are down during faults.
func (m *Monitor) measure(ctx context.Context, n int) {
	m.measureRedis(ctx)
	m.measurePrograms()
	if n%progressEvery == 0 {
		fmt.Fprintf(m.out, "%7d s  %d emails accepted, responses %v\n", n, m.ledger.Accepted(), m.ledger.Statuses())
	}
}

// Stop stops monitoring.
func (m *Monitor) Stop() {
	m.cancel()
	m.working.Wait()
	_ = m.redis.Close() // only read from
}

// Report adds findings for exceeded limits and leaks.
func (m *Monitor) Report(c *checker.Checker) {
	m.reportSizes(c)
	for _, leak := range m.leaks {
		c.Findings.Add(checker.Leak, "%s", leak)
	}
}

// Below lists data that were never searched, for which the absence of leaks proves nothing.
func (m *Monitor) Below(mailings int) []string {
	var list []string
	for what, seen := range map[string]bool{
		"key of Redis":            m.Seen.Keys > 0,
		"response of /metrics":    m.Seen.Metrics > 0,
		"job on RabbitMQ's disks": m.Seen.Messages > 0 || mailings == 0,
	} {
		if !seen {
			list = append(list, "no "+what+" was searched")
		}
	}
	return list
}
