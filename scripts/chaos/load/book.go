package load

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Accepted is an email that was answered with 202.
type Accepted struct {
	Serial     int
	ID         uuid.UUID
	AtMostOnce bool
	// Suppressed: its tenant had its address suppressed before.
	Suppressed bool
}

// Mailing is one that was answered with 202.
type Mailing struct {
	ID      uuid.UUID
	Key     string // the tenant's
	People  map[string]bool
	Invalid int // rows that are no addresses
	Repeats int // rows whose address stood in another one
	// Doomed: its tenant means to cancel it while it is sent.
	Doomed bool
}

// Notes are what the book holds when all is over.
type Notes struct {
	Emails   map[int]Accepted // by serial
	Mailings []Mailing
	// Statements are what was accepted about persons.
	Statements []Statement
	// Cancelled are emails whose cancellation was answered with 200.
	Cancelled map[uuid.UUID]bool
	// Stopped are mailings whose cancellation was answered with 200, and when.
	Stopped map[uuid.UUID]time.Time
	// Steps counts what else was done and answered with success: dead letters sent again,
	// mailings paused and resumed, addresses suppressed.
	Steps map[string]int
	// Statuses counts answers; 0 are the requests without one.
	Statuses map[int]int
	// Resolved counts requests that were repeated because nobody knew what had come of
	// them; of those, Replayed had been accepted the first time.
	Resolved, Replayed int
	// Refused are answers that no fault of ours may cause, Open what was never answered.
	Refused, Open []string
}

// Book remembers what the apis promised. It is safe for concurrent use.
type Book struct {
	mu sync.Mutex
	n  Notes
}

func newBook() *Book {
	return &Book{n: Notes{
		Emails: make(map[int]Accepted), Cancelled: make(map[uuid.UUID]bool), Stopped: make(map[uuid.UUID]time.Time),
		Statuses: make(map[int]int), Steps: make(map[string]int),
	}}
}

// Notes returns what is written in the book. It must not be written in any more.
func (b *Book) Notes() Notes {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

// Accepted counts the emails that were accepted so far.
func (b *Book) Accepted() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.n.Emails)
}

// Expected counts the emails that SES must get: those accepted one by one or as rows of
// a mailing, and not withdrawn or suppressed. Of a mailing that is to be cancelled none
// must.
func (b *Book) Expected() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	expected := len(b.n.Emails) - len(b.n.Cancelled) - b.n.Steps[stepSuppress]
	for _, m := range b.n.Mailings {
		if !m.Doomed {
			expected += len(m.People)
		}
	}
	return expected
}

// mailings are those accepted so far.
func (b *Book) mailings() []Mailing {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.n.Mailings)
}

// Statuses counts the answers so far.
func (b *Book) Statuses() map[int]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.n.Statuses)
}

func (b *Book) write(what func(n *Notes)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	what(&b.n)
}

func (b *Book) accept(a Accepted) { b.write(func(n *Notes) { n.Emails[a.Serial] = a }) }
func (b *Book) mailing(m Mailing) { b.write(func(n *Notes) { n.Mailings = append(n.Mailings, m) }) }

func (b *Book) state(s Statement)   { b.write(func(n *Notes) { n.Statements = append(n.Statements, s) }) }
func (b *Book) cancel(id uuid.UUID) { b.write(func(n *Notes) { n.Cancelled[id] = true }) }
func (b *Book) stop(id uuid.UUID)   { b.write(func(n *Notes) { n.Stopped[id] = time.Now() }) }
func (b *Book) step(what string)    { b.write(func(n *Notes) { n.Steps[what]++ }) }
func (b *Book) answer(status int)   { b.write(func(n *Notes) { n.Statuses[status]++ }) }
func (b *Book) refuse(complaint string) {
	b.write(func(n *Notes) { n.Refused = append(n.Refused, complaint) })
}
func (b *Book) leave(what string) { b.write(func(n *Notes) { n.Open = append(n.Open, what) }) }

func (b *Book) resolve(replayed bool) {
	b.write(func(n *Notes) {
		n.Resolved++
		if replayed {
			n.Replayed++
		}
	})
}
