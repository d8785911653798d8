package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"email-gateway/shared/crashpoint"
)

// The api dies with twenty requests in its hands. Who got a 202 has one row; who asks
// again with the same Idempotency-Key gets one, and one mail, whatever the first time
// came to.
func TestCrashPoints_Accept(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const n = 20
	for round, point := range []crashpoint.Point{crashpoint.AcceptBegun, crashpoint.AcceptCommitted} {
		t.Run(string(point), func(t *testing.T) {
			s.api.stop()
			s.api = s.doomed("api", point, n/2, nil)
			request := func(i int) (id string, err error) {
				key := map[string]string{"Idempotency-Key": fmt.Sprintf("%s-%d", point, i)}
				status, answer, err := s.try(http.MethodPost, "/v1/email/send", newBody(fmt.Sprintf("cliente%d@example.com", i), nil), key)
				if err != nil {
					return "", err
				}
				var accepted struct{ OutboxID string }
				if err := json.Unmarshal(answer, &accepted); err != nil || status != http.StatusAccepted {
					return "", fmt.Errorf("%d %s", status, answer)
				}
				return accepted.OutboxID, nil
			}
			first := make([]string, n) // "" = no answer
			var group sync.WaitGroup
			for i := range n {
				group.Go(func() { first[i], _ = request(i) })
			}
			group.Wait()
			s.api.dies(point)

			answered := slices.DeleteFunc(slices.Clone(first), func(id string) bool { return id == "" })
			rows := s.count("SELECT count(*) FROM email_outbox") - round*n
			switch {
			case point == crashpoint.AcceptBegun && rows >= n:
				t.Errorf("%d rows: the request that died had written one", rows)
			case point == crashpoint.AcceptCommitted && rows <= len(answered):
				t.Errorf("%d rows for %d answers: the request that died had not written one", rows, len(answered))
			}
			s.api = startProgram(s.t, "api", s.env)
			for i, id := range first {
				again, err := request(i)
				if err != nil || id != "" && again != id {
					t.Errorf("asked again: %s, %v; the first answer was %q", again, err, id)
				}
				s.email(again)
			}
			if rows := s.count("SELECT count(*) FROM email_outbox"); rows != (round+1)*n {
				t.Errorf("%d rows, want %d", rows, (round+1)*n)
			}
		})
	}
	s.awaitAll(2*n, time.Minute, "SENT")
	s.sentOnce(2 * n)
}

// The dispatcher dies with twenty emails in its hands. Tasks that it made stand on the
// queue, whatever their rows say; the worker may even be done with them. Each email is
// sent once.
func TestCrashPoints_Dispatch(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	const (
		n     = 20
		marks = "SELECT count(*) FROM email_outbox WHERE enqueued_at IS NOT NULL"
	)
	sent := 0
	for _, c := range []struct {
		point crashpoint.Point
		nth   int
		tasks int // at least so many are on the queue
	}{
		{crashpoint.DispatchLocked, 1, 0},
		{crashpoint.DispatchQueued, 1, 1},
		{crashpoint.DispatchQueued, n/2 + 1, n/2 + 1},
		{crashpoint.DispatchMarked, 1, n},
		{crashpoint.DispatchCommitted, 1, n},
	} {
		t.Run(fmt.Sprintf("%s:%d", c.point, c.nth), func(t *testing.T) {
			s.dispatcher.stop()
			marked := s.count(marks)
			for i := range n {
				s.send(fmt.Sprintf("cliente%d@example.com", i), nil)
			}
			s.dispatcher = s.doomed("dispatcher", c.point, c.nth, nil)
			s.dispatcher.dies(c.point)
			// The worker sends what stands there, with nobody to tell it more.
			s.awaitRequests(int64(sent + c.tasks))
			if c.point == crashpoint.DispatchCommitted {
				marked += n
			}
			if now := s.count(marks); now != marked {
				t.Errorf("%d rows say that they were enqueued, want %d", now, marked)
			}
			s.dispatcher = startProgram(s.t, "dispatcher", s.env)
			sent += n
			s.awaitAll(sent, time.Minute, "SENT")
			s.sentOnce(sent)
		})
	}
	s.awaitQuietQueues(time.Minute)
	s.sentOnce(sent)
}
