package chaos

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"email-gateway/scripts/chaos/judge"
	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/chaos/stage"
	"email-gateway/shared/service"
)

// watch looks at the running gateway once a second: how many tasks stand on Redis, which
// the windows bound, and how far the load has come.
type watch struct {
	stage *stage.Stage
	book  *load.Book
	out   io.Writer

	cancel  context.CancelFunc
	working sync.WaitGroup
	peak    int64 // tasks on one queue, at most
}

const (
	watchInterval = time.Second
	// tellEvery is after how many looks the progress is told.
	tellEvery = 10
	// window is what the dispatchers keep on a queue: two seconds at the send rate. Each
	// of two may fill it from the same measurement, and a crash leaves behind what is
	// counted as active until its lease ends.
	window    = 2 * stage.SendRate
	windowMax = 2*window + 500
)

func startWatch(ctx context.Context, s *stage.Stage, book *load.Book, out io.Writer) *watch {
	w := &watch{stage: s, book: book, out: out}
	ctx, w.cancel = context.WithCancel(ctx)
	w.working.Go(func() { w.run(ctx) })
	return w
}

func (w *watch) run(ctx context.Context) {
	begun := time.Now()
	for n := 1; service.Pause(ctx, watchInterval) == nil; n++ {
		asking, cancel := context.WithTimeout(ctx, watchInterval)
		queues, err := judge.Queues(asking, w.stage.Redis.URL)
		cancel()
		if err == nil { // Redis may be down just now: that is the point
			for _, q := range queues {
				w.peak = max(w.peak, q.Waiting())
			}
		}
		if n%tellEvery == 0 {
			fmt.Fprintf(w.out, "%7.1f s  %d emails accepted, answers %v\n", time.Since(begun).Seconds(), w.book.Accepted(), w.book.Statuses())
		}
	}
}

func (w *watch) stop() {
	w.cancel()
	w.working.Wait()
}

// tell adds what the windows should have prevented.
func (w *watch) tell(j *judge.Judge) {
	if w.peak > windowMax {
		j.Find(judge.Leftover, "%d tasks stood on a queue of Redis; the window is %d", w.peak, window)
	}
}
