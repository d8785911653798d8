package dispatcher

import (
	"bytes"
	"math"
	"sync"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// sharedFor is how long a queue counts as full after it was last seen so.
const sharedFor = 2 * time.Second

// shares divides the window among the queues that are full, as workers take from them: with
// every queue full, three tenths of what is sent come from the one of priority 4 to 7. A
// full window there would be more than three seconds' worth.
//
// A queue with an email now and then takes nothing worth counting from the others: if it made
// their windows small, workers would wait for tasks.
type shares struct {
	mu   sync.Mutex
	seen map[string]time.Time // when a queue was last full
}

func newShares() *shares { return &shares{seen: make(map[string]time.Time)} }

// saw notes how many tasks are on a queue. It is full with half of what it has when all are.
func (s *shares) saw(queue string, tasks, window int) {
	if 2*allWeights()*tasks < window*email.QueueWeight(queue) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[queue] = time.Now()
}

// of is a queue's part of the window, at least 1.
func (s *shares) of(queue string, window int) int {
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

// step is how many tasks a round adds at most to a queue that holds so many: its part of the
// window when every queue is full, or as many as it holds. So a queue fills up within a few
// rounds, milliseconds each, and when several become full at once they see each other before one
// of them holds the whole window.
func (s *shares) step(queue string, tasks, window int) int {
	return max(1, tasks, window*email.QueueWeight(queue)/allWeights())
}

func allWeights() (all int) {
	for _, name := range email.Queues() {
		all += email.QueueWeight(name)
	}
	return all
}

// loadMemory is after how many emails the average of their recipients follows a change.
const loadMemory = 20

// load is the average number of recipients of the emails that were last put on a queue. The
// provider counts recipients, and so does the window: 500 emails with 11 recipients each would
// take a rate of 500 eleven seconds.
type load struct {
	mu      sync.Mutex
	average float64 // 0 = none was seen: 1
}

// per is the average, at least 1.
func (l *load) per() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, l.average)
}

// several says that emails have more than one recipient.
func (l *load) several() bool { return l.per() > 1.1 }

// room turns a number of recipients into a number of emails, at least 1.
func (l *load) room(recipients int) int {
	return max(1, int(math.Ceil(float64(recipients)/l.per())))
}

// fit says how many of a batch's emails, in their order, have no more recipients together than
// as many emails had on average; at least one. It remembers how many all of them have.
func (l *load) fit(rows []store.DueRow, emails int) (n int) {
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

// recipients is how many an email has: each address of cc and bcc has an @.
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
