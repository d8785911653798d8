package load

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Accepted is an email with response 202.
type Accepted struct {
	Serial     int
	ID         uuid.UUID
	AtMostOnce bool
}

// Mailing is a mailing with response 202.
type Mailing struct {
	ID      uuid.UUID
	Key     string            // the tenant's
	Tenant  int               // the number of the key
	People  map[string]string // subjects by address
	Invalid int               // rows without a valid address
	Repeats int               // rows with the address of another row
	// CancelPlanned: its tenant will cancel it while it is being sent.
	CancelPlanned bool
	// Attachments are those of each of its emails.
	Attachments []Attachment
}

// Pause is a confirmed pause of a mailing: from its 200 until the first request to resume it.
type Pause struct {
	Mailing  uuid.UUID
	From, To time.Time
}

// Records are the contents of a Ledger.
type Records struct {
	Emails   map[int]Accepted // by serial
	Mailings []Mailing
	Batches  []Batch
	// Pauses are those of mailings.
	Pauses []Pause
	// Contents are single emails and emails of batches, by recipient's address, also those
	// without a response.
	Contents map[string]Content
	// Files are the ids of stored files, by tenant and content.
	Files map[string]uuid.UUID
	// Statements are the accepted statements about persons.
	Statements []Statement
	// Cancelled are emails whose cancellation got a 200.
	Cancelled map[uuid.UUID]bool
	// Stopped are mailings whose cancellation got a 200, with the time of the response.
	Stopped map[uuid.UUID]time.Time
	// Steps counts further successful requests: dead letters sent again, mailings paused and
	// resumed, addresses suppressed.
	Steps map[string]int
	// Statuses counts responses by HTTP status; 0 counts requests without a response.
	Statuses map[int]int
	// Resolved counts requests that were repeated because they got no response; of those, Replayed
	// had been accepted by the first request.
	Resolved, Replayed int
	// Refused are responses that no injected fault may cause, Open requests that never got a
	// response.
	Refused, Unanswered []string
}

// Ledger records the apis' responses. It is safe for concurrent use.
type Ledger struct {
	mu sync.Mutex
	n  Records
}

func newLedger() *Ledger {
	return &Ledger{n: Records{
		Emails: make(map[int]Accepted), Cancelled: make(map[uuid.UUID]bool), Stopped: make(map[uuid.UUID]time.Time),
		Statuses: make(map[int]int), Steps: make(map[string]int), Contents: make(map[string]Content), Files: make(map[string]uuid.UUID),
	}}
}

// Records returns the contents. The ledger must not be changed after that.
func (l *Ledger) Records() Records {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// Accepted returns the number of emails accepted so far.
func (l *Ledger) Accepted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.n.Emails)
}

// Expected returns the number of emails that SES must receive: those accepted one by one or as rows
// of a mailing, and not withdrawn or suppressed. Mailings that will be cancelled do not count.
func (l *Ledger) Expected() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	expected := len(l.n.Emails) - len(l.n.Cancelled) - l.n.Steps[stepSuppress]
	for _, m := range l.n.Mailings {
		if !m.CancelPlanned {
			expected += len(m.People)
		}
	}
	return expected
}

// mailings returns those accepted so far.
func (l *Ledger) mailings() []Mailing {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.n.Mailings)
}

// Statuses counts the responses so far by HTTP status.
func (l *Ledger) Statuses() map[int]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.n.Statuses)
}

func (l *Ledger) update(what func(n *Records)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what(&l.n)
}

func (l *Ledger) addAccepted(a Accepted) { l.update(func(n *Records) { n.Emails[a.Serial] = a }) }

func (l *Ledger) addMailing(m Mailing) {
	l.update(func(n *Records) { n.Mailings = append(n.Mailings, m) })
}

func (l *Ledger) addPause(p Pause) { l.update(func(n *Records) { n.Pauses = append(n.Pauses, p) }) }

func (l *Ledger) addBatch(b Batch) { l.update(func(n *Records) { n.Batches = append(n.Batches, b) }) }

func (l *Ledger) addContent(e email) {
	l.update(func(n *Records) { n.Contents[Address(e.serial)] = e.content })
}

// addFile returns the first id of the file.
func (l *Ledger) addFile(file string, id uuid.UUID) (first uuid.UUID) {
	l.update(func(n *Records) {
		if _, known := n.Files[file]; !known {
			n.Files[file] = id
		}
		first = n.Files[file]
	})
	return first
}

func (l *Ledger) addStatement(s Statement) {
	l.update(func(n *Records) { n.Statements = append(n.Statements, s) })
}

func (l *Ledger) addCancelled(id uuid.UUID) { l.update(func(n *Records) { n.Cancelled[id] = true }) }

func (l *Ledger) addStopped(id uuid.UUID) { l.update(func(n *Records) { n.Stopped[id] = time.Now() }) }

func (l *Ledger) countStep(what string) { l.update(func(n *Records) { n.Steps[what]++ }) }

func (l *Ledger) countResponse(status int) { l.update(func(n *Records) { n.Statuses[status]++ }) }

func (l *Ledger) addRefusal(complaint string) {
	l.update(func(n *Records) { n.Refused = append(n.Refused, complaint) })
}

func (l *Ledger) addUnanswered(what string) {
	l.update(func(n *Records) { n.Unanswered = append(n.Unanswered, what) })
}

func (l *Ledger) countResolved(replayed bool) {
	l.update(func(n *Records) {
		n.Resolved++
		if replayed {
			n.Replayed++
		}
	})
}
