package load

import (
	"maps"
	"sync"

	"github.com/google/uuid"
)

// Accepted is an email that was answered with 202.
type Accepted struct {
	Serial     int
	ID         uuid.UUID
	AtMostOnce bool
}

// Mailing is one that was answered with 202.
type Mailing struct {
	ID      uuid.UUID
	Key     string // the tenant's
	People  map[string]bool
	Invalid int // rows that are no addresses
	Repeats int // rows whose address stood in another one
}

// Person is a recipient that was answered with 202.
type Person struct {
	ID    uuid.UUID
	Email string
}

// Notes are what the book holds when all is over.
type Notes struct {
	Emails   map[int]Accepted // by serial
	Mailings []Mailing
	People   []Person
	// Cancelled are emails whose cancellation was answered with 200.
	Cancelled map[uuid.UUID]bool
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
	return &Book{n: Notes{Emails: make(map[int]Accepted), Cancelled: make(map[uuid.UUID]bool), Statuses: make(map[int]int)}}
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
// a mailing, and not withdrawn.
func (b *Book) Expected() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	expected := len(b.n.Emails) - len(b.n.Cancelled)
	for _, m := range b.n.Mailings {
		expected += len(m.People)
	}
	return expected
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

func (b *Book) accept(a Accepted)   { b.write(func(n *Notes) { n.Emails[a.Serial] = a }) }
func (b *Book) mailing(m Mailing)   { b.write(func(n *Notes) { n.Mailings = append(n.Mailings, m) }) }
func (b *Book) person(p Person)     { b.write(func(n *Notes) { n.People = append(n.People, p) }) }
func (b *Book) cancel(id uuid.UUID) { b.write(func(n *Notes) { n.Cancelled[id] = true }) }
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
