package dispatcher

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/store/dispatch"
	"email-gateway/worker/internal/queue"
)

// With several full queues, each one's part lasts as long as the whole window would on the only
// full queue; that one gets the whole window.
func TestShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShares()
		want := func(normal int) {
			t.Helper()
			if got := s.share(email.QueueNormal, 200); got != normal {
				t.Errorf("%d, want %d", got, normal)
			}
		}
		want(200)
		s.recordDepth(email.QueueNormal, 50, 200)
		s.recordDepth(email.QueueHigh, 0, 200)
		s.recordDepth(email.QueueHigh, 59, 200) // a queue with an occasional email
		want(200)
		s.recordDepth(email.QueueHigh, 60, 200)
		want(67) // 3 of 9
		s.recordDepth(email.QueueLow, 10, 200)
		want(60) // 3 of 10
		if got := s.share(email.QueueLow, 5); got != 1 {
			t.Errorf("%d, want 1", got)
		}
		<-time.After(sharedFor) // the test bubble's clock
		want(200)
	})
}

// A queue that becomes full grows by steps, so that it sees other queues becoming full.
func TestShares_Step(t *testing.T) {
	t.Parallel()
	s := newShares()
	for tasks, want := range map[int]int{0: 60, 60: 60, 120: 120, 200: 200} {
		if got := s.step(email.QueueNormal, tasks, 200); got != want {
			t.Errorf("%d tasks: a step of %d, want %d", tasks, got, want)
		}
	}
	if got := s.step(email.QueueLow, 0, 5); got != 1 {
		t.Errorf("a step of %d, want 1", got)
	}
}

// A round adds at most a step, however much room there is.
func TestFeeder_FillsInSteps(t *testing.T) {
	t.Parallel()
	f := &feeder{
		size: steps{bulkSizer(200)}, publisher: publisher{queue: roomy{}},
		live: liveLanes{all: []liveLane{{id: 1}}, until: time.Now().Add(time.Hour), lanes: newLanes(nil, nil, 0)}, metrics: newMetrics(prometheus.NewRegistry()).forQueue(email.QueueNormal),
	}
	asked := &askedFor{}
	f.sources = [overlap]source{asked, asked}
	if _, err := f.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if asked.limit != 7+3 {
		t.Errorf("the round asked for %d emails, want 10", asked.limit)
	}
}

// steps is a sizer with a step of 7 more than the queue holds.
type steps struct{ sizer }

func (steps) step(depth int) int { return 7 + depth }

// roomy is a queue of 3 tasks with room for 197.
type roomy struct{ queue.Publisher }

func (roomy) Reserve(context.Context, string, int, int) (queue.Room, error) {
	return queue.Room{Depth: 3, Granted: 197}, nil
}

func (roomy) Release(context.Context, string) error { return nil }

// askedFor is a source without emails that records how many were asked for.
type askedFor struct {
	source
	limit int
}

func (a *askedFor) take(_ context.Context, takes []dispatch.LaneTake) (dispatch.Batch, error) {
	a.limit = takes[0].Limit
	return dispatch.Batch{}, nil
}

func (a *askedFor) idle(context.Context) error { return nil }

func mailsTo(recipients, n int) (rows []dispatch.DueRow) {
	job := email.SendJob{To: "ana@example.com", Subject: `"cc": "a@b"`, Headers: map[string]string{"X-A": `bcc"@`}}
	for i := range recipients - 1 {
		address := fmt.Sprintf("c%d@example.com", i)
		if i < 5 {
			job.CC = append(job.CC, address)
		} else {
			job.BCC = append(job.BCC, address)
		}
	}
	payload, _ := json.Marshal(job) // never fails
	return slices.Repeat([]dispatch.DueRow{{Payload: payload}}, n)
}

func TestRecipients(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 6, 11} {
		if got := recipients(mailsTo(n, 1)[0].Payload); got != n {
			t.Errorf("%d, want %d", got, n)
		}
	}
	for _, payload := range []string{``, `[]`, `null`, `{"cc":null}`, `{"cc":`, `{"cc":[]}`, strings.Repeat(`{"cc"`, 3)} {
		if got := recipients([]byte(payload)); got != 1 {
			t.Errorf("of %q: %d, want 1", payload, got)
		}
	}
}

// A window of 200 recipients is hardly exceeded: the first batch of emails with 11 recipients each
// is cut, and later batches are smaller.
func TestLoad(t *testing.T) {
	t.Parallel()
	const window = 200
	l := &load{}
	for _, batch := range []struct {
		recipients int
		limit      int // recipients on the queue
	}{{1, window}, {11, window}, {11, window + 11}, {11, window + 11}, {1, window}} {
		room := l.room(window)
		fit := l.fit(mailsTo(batch.recipients, room), room)
		if got := fit * batch.recipients; got > batch.limit || fit == 0 {
			t.Errorf("%d emails of %d recipients each were published", fit, batch.recipients)
		}
	}
	for range 10 {
		l.fit(mailsTo(1, 20), 20)
	}
	if room := l.room(window); room != window {
		t.Errorf("room for %d emails of one recipient each, want %d", room, window)
	}
}
