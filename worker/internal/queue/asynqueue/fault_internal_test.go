package asynqueue

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"email-gateway/worker/internal/queue"
)

func TestShares(t *testing.T) {
	t.Parallel()
	for concurrency, want := range map[int][]int{
		0: {1}, 1: {1}, 10: {10}, 17: {9, 8}, 64: {16, 16, 16, 16}, 200: {50, 50, 50, 50}, 256: {64, 64, 64, 64}, 260: {52, 52, 52, 52, 52},
	} {
		if diff := cmp.Diff(want, shares(concurrency)); diff != "" {
			t.Errorf("%d (-want +got)\n%s", concurrency, diff)
		}
	}
}

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	fault := errors.New("internal error")
	later := fmt.Errorf("send: %w", &queue.RetryLater{Delay: 1230 * time.Millisecond})
	for _, test := range []struct {
		delivered int
		err       error
		want      time.Duration
	}{
		{0, asFault(later), 1730 * time.Millisecond},
		{9, asFault(later), 1730 * time.Millisecond},
		{0, asFault(&queue.RetryLater{Delay: -time.Second}), 500 * time.Millisecond},
		{0, asFault(fault), 1500 * time.Millisecond},
		{3, asFault(fault), 8500 * time.Millisecond},
		{5, asFault(fault), 30500 * time.Millisecond},
		{500_000, asFault(fault), 30500 * time.Millisecond},
		{0, asynq.ErrLeaseExpired, 1500 * time.Millisecond},
	} {
		if got := retryDelay(test.delivered, test.err, nil); got != test.want {
			t.Errorf("%v, delivered %d times before: %s, want %s", test.err, test.delivered, got, test.want)
		}
	}
}

func TestAsFault(t *testing.T) {
	t.Parallel()
	if asFault(nil) != nil {
		t.Error("nil is an error")
	}
	dead := asFault(fmt.Errorf("pipeline: %w", &queue.Dead{Reason: "no mailbox ana@example.com"}))
	if !errors.Is(dead, asynq.SkipRetry) {
		t.Error("a dead task would be retried")
	}
	if errors.Is(asFault(&queue.RetryLater{}), asynq.SkipRetry) {
		t.Error("a delayed task would be archived")
	}
	if strings.Contains(dead.Error(), "ana@example.com") {
		t.Errorf("an address is sent to Redis: %v", dead)
	}
}
