package dispatcher

import (
	"bytes"
	"math"
	"sync"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store/dispatch"
)

// sharedFor is how long a queue counts as full after it was last full.
const sharedFor = 2 * time.Second

// shares divides the window among the full queues in proportion to their weights, as workers do when they take tasks. If all
// queues are full, three tenths of the sent emails come from the queue of priority 4 to 7, and a full window on that queue
// would take 2.5 s to empty.
//
// A queue with an occasional email does not count as full: it takes almost nothing from the others, and with smaller windows
// their workers would wait for tasks.
type shares struct {
	mu   sync.Mutex
	seen map[string]time.Time // when a queue was last full
}

func newShares() *shares { return &shares{seen: make(map[string]time.Time)} }

// recordDepth records the depth of a queue. A queue is full from half of its share of the window on.
func (s *shares) recordDepth(queue string, tasks, window int) {
	if 2*allWeights()*tasks < window*email.QueueWeight(queue) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[queue] = time.Now()
}

// share returns a queue's part of the window, at least 1.
func (s *shares) share(queue string, window int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := email.QueueWeight(queue)
	all := own
	for other, at := range s.seen {
		if other != queue && time.Since(at) < sharedFor {
			all += email.QueueWeight(other)
		}
	}
	return max(1, (window*own+all-1)/all)
}

// step returns the maximum number of tasks that a round adds to a queue of this depth: its depth, or its share if all queues
// are full. A queue then fills up within a few rounds of some milliseconds, and if several queues fill up at the same time,
// each counts as full before one of them has filled the whole window.
func (s *shares) step(queue string, tasks, window int) int {
	return max(1, tasks, window*email.QueueWeight(queue)/allWeights())
}

func allWeights() (all int) {
	for _, name := range email.Queues() {
		all += email.QueueWeight(name)
	}
	return all
}

// loadMemory is the number of emails after which the average of their recipients follows a change.
const loadMemory = 20

// load is the average number of recipients of the emails enqueued last. The window counts recipients, as the provider does: 500
// emails with 11 recipients each take eleven seconds at a rate of 500 per second.
type load struct {
	mu      sync.Mutex
	average float64 // 0 = no email yet, which counts as 1
}

// per returns the average, at least 1.
func (l *load) per() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, l.average)
}

// several reports whether emails have more than one recipient.
func (l *load) several() bool { return l.per() > 1.1 }

// room converts a number of recipients to a number of emails, at least 1.
func (l *load) room(recipients int) int {
	return max(1, int(math.Ceil(float64(recipients)/l.per())))
}

// fit returns how many of the rows, from the first one on, have at most as many recipients together as that number of emails
// has on average; at least one. It updates the average with all rows.
func (l *load) fit(rows []dispatch.DueRow, emails int) (n int) {
	before := l.per()
	budget, sum := before*float64(emails), 0
	for i, row := range rows {
		if sum += recipients(row.Payload); i == 0 || float64(sum) <= budget {
			n = i + 1
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	part := min(1, float64(len(rows))/loadMemory)
	l.average = before + (float64(sum)/float64(max(len(rows), 1))-before)*part
	return n
}

// recipients counts an email's recipients: each address of cc and bcc has one @.
func recipients(payload []byte) int {
	n := 1
	if !bytes.Contains(payload, []byte(`cc"`)) { // nearly always
		return n
	}
	_, _ = without(payload, func(member []byte) bool {
		if bytes.HasPrefix(member, []byte(`"cc"`)) || bytes.HasPrefix(member, []byte(`"bcc"`)) {
			n += bytes.Count(member, []byte("@"))
		}
		return true
	})
	return n
}
