package pipeline_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/lane"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue"
)

// wakeLog records the wake-ups on their way to the database.
type wakeLog struct {
	pipeline.Outbox
	mu    sync.Mutex
	lanes []lane.Lanes
}

func (w *wakeLog) WakeLanes(ctx context.Context, lanes []lane.Lanes) error {
	w.mu.Lock()
	w.lanes = append(w.lanes, lanes...)
	w.mu.Unlock()
	return w.Outbox.WakeLanes(ctx, lanes)
}

func (w *wakeLog) named() []lane.Lanes {
	w.mu.Lock()
	defer w.mu.Unlock()
	named := w.lanes
	w.lanes = nil
	return named
}

// taken returns the email's task as if it had been enqueued some time ago.
func (b *bench) taken(t *testing.T, id uuid.UUID, ago time.Duration) queue.Task {
	t.Helper()
	task := b.task(t, id)
	job, err := email.DecodeSendJob(task.Payload)
	if err != nil {
		t.Fatal(err)
	}
	job.EnqueuedAt = time.Now().Add(-ago)
	if task.Payload, err = json.Marshal(job); err != nil {
		t.Fatal(err)
	}
	return task
}

// An email that returns to the outbox long after it was taken wakes the dispatchers, which no
// longer poll its lane.
func TestHandle_LateReleaseWakesLane(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil  func(t *testing.T, b *bench, id uuid.UUID)
		answer *provider.Failure
	}{
		"a lane that is closed": {spoil: func(t *testing.T, b *bench, id uuid.UUID) {
			t.Helper()
			b.exec(t, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = $1`, id)
			b.exec(t, `UPDATE dispatch_lanes SET paused_at = now()`)
		}},
		"a retry":   {answer: &provider.Failure{Outcome: provider.Retry, Code: "X", Category: provider.TransientError}},
		"a release": {answer: &provider.Failure{Outcome: provider.Unspent, Code: "X", Category: provider.TransientError}},
	} {
		for late, ago := range map[bool]time.Duration{false: time.Second, true: 2 * time.Minute} {
			wakes := &wakeLog{}
			b := newBench(t, func(p *pipeline.Params) {
				wakes.Outbox = p.Outbox
				p.Outbox, p.RetryRoom = wakes, retryRoom(false)
			})
			id := b.Accept(t, b.company, nil)
			if tt.spoil != nil {
				tt.spoil(t, b, id)
			}
			if tt.answer != nil {
				b.sender.fail(1, *tt.answer)
			}
			if err := b.pipeline.Handle(t.Context(), b.taken(t, id, ago)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			var want []lane.Lanes
			if late {
				want = []lane.Lanes{{Company: b.company, Queue: email.QueueNormal}}
			}
			if got := wakes.named(); !slices.Equal(got, want) {
				t.Errorf("%s, taken %s ago: woke %v, want %v", name, ago, got, want)
			}
		}
	}
}
