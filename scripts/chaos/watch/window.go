package watch

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"email-gateway/scripts/chaos/judge"
	"email-gateway/scripts/chaos/stage"
)

const (
	// countEvery is how often tasks are counted: a queue fills and empties within a second.
	countEvery = 200 * time.Millisecond
	// limitEvery is how often the limit is read.
	limitEvery = time.Second
	// limitLife is how long a limit applies after it was read. A dispatcher may go by a
	// worker's report for 15 s, and a window that became smaller needs time to drain.
	limitLife = 30 * time.Second
	// windowSeconds of the send rate are one queue's window. All dispatchers share it.
	windowSeconds = 1
	// spare is the part of the limit that should never be used.
	spare = 0.1
)

// Window is the largest part of its limit that one queue used.
type Window struct {
	// Tasks are those pending, active, scheduled and waiting for a retry, together.
	Tasks int64 `json:"tasks"`
	// Limit is the window and the workers' concurrency.
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

// Spare says that enough of the limit was never used.
func (w Window) Spare() bool { return w.Share() <= 1-spare }

// capacity is what the workers can do together.
type capacity struct {
	concurrency int64
	sendRate    float64
}

// configured is the capacity by the programs' settings, for the time before a worker reports.
func configured() capacity {
	return capacity{int64(stage.Concurrency * len(stage.ProgramNames("worker"))), stage.SendRate}
}

// limit is the most tasks that may be on a queue: the window, and one task in each of the
// workers' goroutines.
func (c capacity) limit() int64 {
	return max(2*c.concurrency, int64(math.Ceil(windowSeconds*c.sendRate))) + c.concurrency
}

// reportedSQL reads what the workers said in the time for which a dispatcher goes by it.
const reportedSQL = `SELECT details FROM process_status WHERE service = 'worker' AND updated_at > now() - interval '15 s'`

// reported is the capacity by the workers' own reports; 0 where there is none.
func (w *Watch) reported(ctx context.Context) (capacity, error) {
	rows, err := w.stage.Database.QueryContext(ctx, reportedSQL)
	if err != nil {
		return capacity{}, err
	}
	defer rows.Close()
	var c capacity
	for rows.Next() {
		var text []byte
		if err := rows.Scan(&text); err != nil {
			return capacity{}, err
		}
		c.add(text)
	}
	return c, rows.Err()
}

// add adds one worker's report: concurrencies add up, the send rate is one account's.
func (c *capacity) add(report []byte) {
	var said struct {
		Concurrency int64   `json:"concurrency"`
		SendRate    float64 `json:"sendRate"`
	}
	if json.Unmarshal(report, &said) != nil {
		return
	}
	c.concurrency += said.Concurrency
	c.sendRate = max(c.sendRate, said.SendRate)
}

// dated is a limit and when it was read.
type dated struct {
	limit int64
	at    time.Time
}

// readLimit asks the database, and says whether it answered. One that does not answer leaves the
// limit as it is.
func (w *Watch) readLimit(ctx context.Context, now time.Time) (read bool) {
	c, err := w.reported(ctx)
	if err != nil {
		return false
	}
	if c.concurrency == 0 || c.sendRate == 0 { // dispatchers go by their own settings then
		c = configured()
	}
	c.concurrency = max(c.concurrency, configured().concurrency) // a worker that is frozen reports nothing, and has its tasks
	w.addLimit(c.limit(), now)
	return true
}

// addLimit keeps the limit, and forgets those that are too old, but not the newest.
func (w *Watch) addLimit(limit int64, now time.Time) {
	w.limits = slices.DeleteFunc(w.limits, func(d dated) bool { return now.Sub(d.at) > limitLife })
	w.limits = append(w.limits, dated{limit, now})
}

// currentLimit is the largest limit that still applies.
func (w *Watch) currentLimit() int64 {
	if len(w.limits) == 0 {
		return configured().limit()
	}
	return slices.MaxFunc(w.limits, func(a, b dated) int { return int(a.limit - b.limit) }).limit
}

// draining says that a queue holds no more than at the last look. A window that became
// smaller takes no task off the queue: it only lets no other in. A Redis that has restarted
// lost its last second of writes, so tasks that had ended are on the queue again.
func (w *Watch) draining(queue string, tasks, limit int64, restarted bool) bool {
	if w.held == nil {
		w.held = make(map[string]int64)
	}
	over := tasks > limit && (restarted || tasks <= w.held[queue])
	if over || tasks <= limit {
		w.held[queue] = tasks
	}
	return over
}

// restarted says whether the Redis that answers is another process than at the look before the
// last: the count before it may still be of the old one.
func (w *Watch) restarted(ctx context.Context) (bool, error) {
	info, err := w.redis.InfoMap(ctx, "server").Result()
	if err != nil {
		return false, err
	}
	run := info["Server"]["run_id"]
	again := w.runs[1] != "" && (run != w.runs[1] || w.runs[1] != w.runs[0])
	w.runs = [2]string{w.runs[1], run}
	return again, nil
}

// count compares the queues with the limit.
func (w *Watch) count(ctx context.Context, n int) {
	if n%int(limitEvery/countEvery) == 1 {
		w.readLimit(ctx, time.Now())
	}
	queues, err := judge.Queues(ctx, w.redis)
	if err != nil {
		return
	}
	restarted, err := w.restarted(ctx)
	if err != nil {
		return
	}
	limit := w.currentLimit()
	if slices.ContainsFunc(queues, func(q judge.Queue) bool { return !(Window{Tasks: q.Tasks(), Limit: limit}).Spare() }) {
		// While the rate recovers after throttling, each report of a worker raises the limit by up to
		// 100. The dispatchers may have acted on one that was made after the last look.
		if !w.readLimit(ctx, time.Now()) {
			return
		}
		limit = w.currentLimit()
	}
	for _, q := range queues {
		if w.draining(q.Name, q.Tasks(), limit, restarted) {
			continue
		}
		if seen := (Window{Tasks: q.Tasks(), Limit: limit, Queue: q.Name}); seen.Share() > w.Seen.Window.Share() {
			w.Seen.Window = seen
		}
	}
}
