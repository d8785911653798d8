package watch

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"email-gateway/scripts/chaos/judge"
	"email-gateway/scripts/chaos/stage"
)

const (
	// A task on Redis is its payload, without the html, and asynq's lists.
	redisBase    = 32 << 20
	bytesPerTask = 8 << 10
)

// rssMax is what a program of the kind may take, at full load, whatever waits.
var rssMax = map[string]int64{stage.API: 150 << 20, "dispatcher": 150 << 20, "worker": 250 << 20}

var usedMemory = regexp.MustCompile(`(?m)^used_memory:(\d+)`)

func (w *Watch) measureRedis(ctx context.Context) {
	queues, err := judge.Queues(ctx, w.redis)
	if err != nil {
		return
	}
	var all, archived int64
	for _, q := range queues {
		w.Seen.Retries = max(w.Seen.Retries, q.Retry)
		all, archived = all+q.Tasks()+q.Archived, archived+q.Archived
		if q.Completed > 0 {
			w.big("%s keeps %d tasks that are done", q.Name, q.Completed)
		}
	}
	w.Seen.Archived = max(w.Seen.Archived, archived)
	info, err := w.redis.Info(ctx, "memory").Result()
	if err != nil {
		return
	}
	found := usedMemory.FindStringSubmatch(info)
	if found == nil {
		return
	}
	used, _ := strconv.ParseInt(found[1], 10, 64) // digits
	w.Seen.Redis = max(w.Seen.Redis, used)
	if most := redisBase + bytesPerTask*all; used > most {
		w.big("Redis takes %d bytes with %d tasks, at most %d are allowed", used, all, most)
	}
}

func (w *Watch) big(format string, args ...any) {
	if len(w.sizes) < maxComplaints {
		w.sizes = append(w.sizes, fmt.Sprintf(format, args...))
	}
}

func (w *Watch) measurePrograms() {
	for _, p := range w.stage.Programs {
		pid := p.PID()
		if pid == 0 {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it has ended since
		}
		for line := range strings.Lines(string(text)) {
			// The kernel keeps the peak, so that one between two looks is seen.
			if value, found := strings.CutPrefix(line, "VmHWM:"); found {
				kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
				w.Seen.RSS[p.Name] = max(w.Seen.RSS[p.Name], kib<<10)
			}
		}
	}
}

// tellSizes adds what the windows and the programs' settings should have prevented.
func (w *Watch) tellSizes(j *judge.Judge) {
	if seen := w.Seen.Window; seen.Tasks > seen.Limit {
		j.Find(judge.Size, "%s had %d tasks; the window and the workers' concurrency are %d together", seen.Queue, seen.Tasks, seen.Limit)
	}
	for _, p := range w.stage.Programs {
		if w.Seen.RSS[p.Name] > rssMax[p.Kind] {
			j.Find(judge.Size, "%s took %d MiB, at most %d are allowed", p.Name, w.Seen.RSS[p.Name]>>20, rssMax[p.Kind]>>20)
		}
	}
	for _, text := range w.sizes {
		j.Find(judge.Size, "%s", text)
	}
	j.Archived = w.Seen.Archived
}
