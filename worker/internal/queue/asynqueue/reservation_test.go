package asynqueue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/redistest"
)

// A dispatcher that dies with its grant leaves room to the other one, and both together never get
// more than the window.
func TestReserve_SharedWindow(t *testing.T) {
	t.Parallel()
	const window = 100
	url, prefix := redistest.Shared(t)
	conn := parse(t, url).WithPrefix(prefix)
	publishers := [2]*asynqueue.Publisher{asynqueue.NewPublisher(conn), asynqueue.NewPublisher(conn)}
	reserve := func(i int) int {
		t.Helper()
		room, err := publishers[i].Reserve(t.Context(), email.QueueNormal, window, 2000)
		if err != nil {
			t.Fatal(err)
		}
		return room.Granted
	}
	for i, p := range publishers {
		t.Cleanup(func() { _ = p.Close() })
		if n := reserve(i); n == 0 || n > window {
			t.Errorf("publisher %d got %d of %d", i, n, window)
		}
		if err := p.Release(t.Context(), email.QueueNormal); err != nil {
			t.Fatal(err)
		}
	}
	dead := reserve(0) // never released
	left := reserve(1)
	if left == 0 || dead+left > window {
		t.Errorf("one got %d and died, the other got %d of %d", dead, left, window)
	}
	waittest.Until(t, "the dead one's room", func() bool { return reserve(1) > window-dead })
}

// The grant of a dispatcher that died before Redis's clock was set back does not count until the clock reaches its time again.
func TestReserve_AfterClockSetBack(t *testing.T) {
	t.Parallel()
	const window = 100
	url, prefix := redistest.Shared(t)
	conn := parse(t, url).WithPrefix(prefix)
	client, publisher := conn.Client(), asynqueue.NewPublisher(conn)
	t.Cleanup(func() { _, _ = client.Close(), publisher.Close() })
	now, err := client.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	ahead := now.Add(time.Hour).UnixMilli()
	entry := fmt.Sprintf("%d %d %d", window, ahead+5000, ahead)
	if err := client.HSet(t.Context(), "email-gateway:{"+prefix+email.QueueNormal+"}:reserved", "dead", entry).Err(); err != nil {
		t.Fatal(err)
	}
	room, err := publisher.Reserve(t.Context(), email.QueueNormal, window, 2000)
	if err != nil {
		t.Fatal(err)
	}
	if room.Granted != window {
		t.Errorf("granted %d, want the window of %d", room.Granted, window)
	}
}

// Retries may wait on a queue while they use less than a quarter of the window that a dispatcher
// has set.
func TestRetryRoom(t *testing.T) {
	t.Parallel()
	url, prefix := redistest.Shared(t)
	conn := parse(t, url).WithPrefix(prefix)
	client, publisher := conn.Client(), asynqueue.NewPublisher(conn)
	t.Cleanup(func() { _, _ = client.Close(), publisher.Close() })
	room := asynqueue.NewRetryRoom(conn, client)
	if room.Free(t.Context(), email.QueueNormal) {
		t.Error("there is room although no window was set")
	}
	if _, err := publisher.Reserve(t.Context(), email.QueueNormal, 12, 0); err != nil {
		t.Fatal(err)
	}
	for waiting, want := range []bool{true, true, true, false} {
		if got := room.Free(t.Context(), email.QueueNormal); got != want {
			t.Errorf("with %d of 12 waiting: %v, want %v", waiting, got, want)
		}
		if err := client.ZAdd(t.Context(), "asynq:{"+prefix+email.QueueNormal+"}:retry", redis.Z{Score: 1, Member: waiting}).Err(); err != nil {
			t.Fatal(err)
		}
	}
}
