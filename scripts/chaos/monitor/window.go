package monitor

import (
	"context"
	"database/sql"
	"math"
	"slices"
	"time"

	"email-gateway/scripts/chaos/checker"
	"email-gateway/scripts/chaos/cluster"
)

const (
	// countEvery is the interval of task counts: a queue fills and empties within a second.
	countEvery = 200 * time.Millisecond
	// limitEvery is the interval of limit reads.
	limitEvery = time.Second
	// limitLife is how long a limit applies after it was read. A dispatcher may use a worker's
	// report for 15 s, and a queue needs time to drain after its window shrinks.
	limitLife = 30 * time.Second
	// windowSeconds of the send rate are one queue's window besides the emails in flight. All dispatchers share the window.
	windowSeconds = 0.75
	// spare is the part of the limit that must stay unused.
	spare = 0.1
)

// Window is the maximum use of a queue's limit.
type Window struct {
	// Tasks is the sum of pending, active, scheduled and retry tasks.
	Tasks int64 `json:"tasks"`
	// Limit is the window plus the workers' goroutines.
	Limit int64  `json:"limit"`
	Queue string `json:"queue"`
}

// Share is the part of the limit that was used; 1 is all of it.
func (w Window) Share() float64 {
	if w.Limit == 0 {
		return 0
	}
	return float64(w.Tasks) / float64(w.Limit)
}

// Spare reports whether enough of the limit stayed unused.
func (w Window) Spare() bool { return w.Share() <= 1-spare }

// limitAt returns the maximum number of tasks on a queue at a send rate: the window, which has room for the emails in flight that
// the workers need, and one more task per goroutine of the workers. The workers need as many as they have goroutines at most.
func limitAt(sendRate float64) int64 {
	goroutines := cluster.Concurrency * len(cluster.ProgramNames("worker"))
	return int64(math.Ceil(windowSeconds*sendRate)) + int64(2*goroutines)
}

// rateSQL reads the account's rate from the workers' reports that are recent enough for a dispatcher.
const rateSQL = `SELECT max((details ->> 'sendRate')::float8) FROM process_status WHERE service = 'worker' AND updated_at > now() - interval '15 s'`

// dated is a limit and when it was read.
type dated struct {
	limit int64
	at    time.Time
}

// readLimit reads the limit from the database, and reports whether that succeeded. On failure the
// limit does not change.
func (m *Monitor) readLimit(ctx context.Context, now time.Time) (read bool) {
	var reported sql.NullFloat64
	if err := m.cluster.Database.QueryRowContext(ctx, rateSQL).Scan(&reported); err != nil {
		return false
	}
	rate := reported.Float64
	if rate == 0 { // then dispatchers use their own setting
		rate = cluster.SendRate
	}
	m.addLimit(limitAt(rate), now)
	return true
}

// addLimit adds the limit, and removes expired ones except for the newest.
func (m *Monitor) addLimit(limit int64, now time.Time) {
	m.limits = slices.DeleteFunc(m.limits, func(d dated) bool { return now.Sub(d.at) > limitLife })
	m.limits = append(m.limits, dated{limit, now})
}

// currentLimit returns the largest limit that still applies.
func (m *Monitor) currentLimit() int64 {
	if len(m.limits) == 0 {
		return limitAt(cluster.SendRate)
	}
	return slices.MaxFunc(m.limits, func(a, b dated) int { return int(a.limit - b.limit) }).limit
}

// draining reports whether a queue was above its limit and has not grown at any count since. A smaller
// window removes no task from the queue, it only admits no new ones. The queue is draining until the
// spare part of the limit is free. A restarted Redis lost its last second of writes, so that finished
// tasks are on the queue again.
func (m *Monitor) draining(queue string, tasks, limit int64, restarted bool) bool {
	if m.held == nil {
		m.held, m.drains = make(map[string]int64), make(map[string]bool)
	}
	over := tasks > limit || m.drains[queue] && !(Window{Tasks: tasks, Limit: limit}).Spare()
	m.drains[queue] = over && (restarted || tasks <= m.held[queue])
	if m.drains[queue] || tasks <= limit {
		m.held[queue] = tasks
	}
	return m.drains[queue]
}

// restarted reports whether Redis is another process than at one of the last two counts: the
// previous count may still be of the old one.
func (m *Monitor) restarted(ctx context.Context) (bool, error) {
	info, err := m.redis.InfoMap(ctx, "server").Result()
	if err != nil {
		return false, err
	}
	run := info["Server"]["run_id"]
	again := m.runs[1] != "" && (run != m.runs[1] || m.runs[1] != m.runs[0])
	m.runs = [2]string{m.runs[1], run}
	return again, nil
}

// count compares the queues with the limit.
func (m *Monitor) count(ctx context.Context, n int) {
	if n%int(limitEvery/countEvery) == 1 {
		m.readLimit(ctx, time.Now())
	}
	queues, err := checker.Queues(ctx, m.redis)
	if err != nil {
		return
	}
	restarted, err := m.restarted(ctx)
	if err != nil {
		return
	}
	limit := m.currentLimit()
	if slices.ContainsFunc(queues, func(q checker.Queue) bool { return !(Window{Tasks: q.Tasks(), Limit: limit}).Spare() }) {
		// While the rate recovers after throttling, each report of a worker raises the limit by up
		// to 100. The dispatchers may have used a report that is newer than the last read.
		if !m.readLimit(ctx, time.Now()) {
			return
		}
		limit = m.currentLimit()
	}
	for _, q := range queues {
		if m.draining(q.Name, q.Tasks(), limit, restarted) {
			continue
		}
		if seen := (Window{Tasks: q.Tasks(), Limit: limit, Queue: q.Name}); seen.Share() > m.Seen.Window.Share() {
			m.Seen.Window = seen
		}
	}
}
