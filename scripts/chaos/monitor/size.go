package monitor

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"email-gateway/scripts/chaos/checker"
	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/local"
)

const (
	// A task on Redis is its payload, without the html, and asynq's lists.
	redisBase    = 32 << 20
	bytesPerTask = 8 << 10
)

// rssMax is the memory limit of a program by kind, for any backlog.
var rssMax = map[string]int64{cluster.API: 150 << 20, "dispatcher": 150 << 20, "worker": 250 << 20}

var usedMemory = regexp.MustCompile(`(?m)^used_memory:(\d+)`)

func (m *Monitor) measureRedis(ctx context.Context) {
	queues, err := checker.Queues(ctx, m.redis)
	if err != nil {
		return
	}
	var all, archived int64
	for _, q := range queues {
		m.Seen.Retries = max(m.Seen.Retries, q.Retry)
		all, archived = all+q.Tasks()+q.Archived, archived+q.Archived
		if q.Completed > 0 {
			m.addSizeFinding("%s holds %d completed tasks", q.Name, q.Completed)
		}
	}
	m.Seen.Archived = max(m.Seen.Archived, archived)
	info, err := m.redis.Info(ctx, "memory").Result()
	if err != nil {
		return
	}
	found := usedMemory.FindStringSubmatch(info)
	if found == nil {
		return
	}
	used, _ := strconv.ParseInt(found[1], 10, 64) // digits
	m.Seen.Redis = max(m.Seen.Redis, used)
	if most := redisBase + bytesPerTask*all; used > most {
		m.addSizeFinding("Redis uses %d bytes with %d tasks, limit %d", used, all, most)
	}
}

func (m *Monitor) addSizeFinding(format string, args ...any) {
	if len(m.sizes) < maxFindings {
		m.sizes = append(m.sizes, fmt.Sprintf(format, args...))
	}
}

func (m *Monitor) measurePrograms() {
	for _, p := range m.cluster.Programs {
		pid := p.PID()
		if pid == 0 {
			continue
		}
		if peak, err := local.PeakMemory(pid); err == nil { // otherwise it has exited meanwhile
			m.Seen.RSS[p.Name] = max(m.Seen.RSS[p.Name], peak)
		}
	}
}

// reportSizes adds findings for exceeded limits.
func (m *Monitor) reportSizes(c *checker.Checker) {
	if seen := m.Seen.Window; seen.Tasks > seen.Limit {
		c.Findings.Add(checker.Size, "%s had %d tasks; the limit by window and concurrency is %d", seen.Queue, seen.Tasks, seen.Limit)
	}
	for _, p := range m.cluster.Programs {
		if m.Seen.RSS[p.Name] > rssMax[p.Kind] {
			c.Findings.Add(checker.Size, "%s used %d MiB, limit %d", p.Name, m.Seen.RSS[p.Name]>>20, rssMax[p.Kind]>>20)
		}
	}
	for _, text := range m.sizes {
		c.Findings.Add(checker.Size, "%s", text)
	}
	c.Archived = m.Seen.Archived
}
