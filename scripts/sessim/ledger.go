package sessim

import (
	"slices"
	"sync/atomic"
	"time"

	"email-gateway/scripts/sessim/sesmail"
)

// Entry is one SendEmail request that arrived in full.
type Entry struct {
	Seq       int64     `json:"seq"` // from 1, without gaps
	Time      time.Time `json:"time"`
	OutboxID  string    `json:"outboxId,omitempty"`
	AttemptID string    `json:"attemptId,omitempty"`
	CompanyID string    `json:"companyId,omitempty"`
	From      string    `json:"from"`
	To        []string  `json:"to"`
	CC        []string  `json:"cc,omitempty"`
	BCC       []string  `json:"bcc,omitempty"`
	Subject   string    `json:"subject"`
	// HTMLSHA256 is the digest of the html as it would arrive; empty without html.
	HTMLSHA256  string               `json:"htmlSha256,omitempty"`
	Attachments []sesmail.Attachment `json:"attachments,omitempty"`

	// Fault is the name of the table row that determined the response, injected or caused by the
	// settings. It is empty for a success and for an invalid mail; for the latter Error has the
	// message.
	Fault  string `json:"fault,omitempty"`
	Status int    `json:"status"` // 0: no response
	Error  string `json:"error,omitempty"`

	// Accepted: the mail was accepted. Answered: the whole response was written while the client
	// was connected. For Accepted without Answered the client cannot know the outcome.
	Accepted  bool   `json:"accepted"`
	Answered  bool   `json:"answered"`
	MessageID string `json:"messageId,omitempty"`

	RemoteAddr string `json:"remoteAddr"`
}

// record is an Entry in the ledger. Only the two fields below the Entry change.
type record struct {
	Entry
	answered atomic.Bool
	next     *record // the next request for the same outbox id
}

func (r *record) entry() Entry {
	e := r.Entry
	e.Answered = r.answered.Load()
	return e
}

// chain are the records of one outbox id.
type chain struct {
	oldest, newest *record
	accepted       int
}

// ledger stores the last requests and counts all requests. Server.mu guards it, except setAnswered.
type ledger struct {
	limit    int
	records  queue[*record]
	byOutbox map[string]*chain
	twice    map[string]*chain // those of byOutbox accepted more than once

	requests, accepted, broken, accountCalls int64
	acceptedOutboxes                         int64
	answered                                 atomic.Int64
	byFault                                  map[string]int64
	byStatus                                 map[int]int64
}

func newLedger(limit int) *ledger {
	return &ledger{
		limit:    limit,
		byOutbox: make(map[string]*chain),
		twice:    make(map[string]*chain),
		byFault:  make(map[string]int64),
		byStatus: make(map[int]int64),
	}
}

func (l *ledger) add(sub *submission, f Fault) *record {
	l.requests++
	l.byStatus[f.Status]++
	if f.Name != "" {
		l.byFault[f.Name]++
	}
	if f.Accepted {
		l.accepted++
	}
	r := &record{Entry: Entry{
		Seq:         l.requests,
		Time:        sub.received,
		OutboxID:    sub.OutboxID,
		AttemptID:   sub.AttemptID,
		CompanyID:   sub.CompanyID,
		From:        sub.From,
		To:          sub.To,
		CC:          sub.CC,
		BCC:         sub.BCC,
		Subject:     sub.Subject,
		HTMLSHA256:  sub.htmlSHA256,
		Attachments: sub.Attachments,
		Fault:       f.Name,
		Status:      f.Status,
		Error:       f.Message,
		Accepted:    f.Accepted,
		MessageID:   sub.MessageID,
		RemoteAddr:  sub.remote,
	}}
	if l.records.len() == l.limit {
		l.forget(l.records.pop())
	}
	l.records.push(r)
	l.link(r)
	return r
}

func (l *ledger) link(r *record) {
	if r.OutboxID == "" {
		return
	}
	c := l.byOutbox[r.OutboxID]
	if c == nil {
		c = &chain{oldest: r}
		l.byOutbox[r.OutboxID] = c
	} else {
		c.newest.next = r
	}
	c.newest = r
	if !r.Accepted {
		return
	}
	c.accepted++
	switch c.accepted {
	case 1:
		l.acceptedOutboxes++
	case 2:
		l.twice[r.OutboxID] = c
	}
}

// forget removes the oldest record, which is the oldest of its chain, from the index.
func (l *ledger) forget(r *record) {
	if r.OutboxID == "" {
		return
	}
	c := l.byOutbox[r.OutboxID]
	c.oldest = r.next
	if c.oldest == nil {
		delete(l.byOutbox, r.OutboxID)
	}
	if r.Accepted {
		c.accepted--
		if c.accepted == 1 {
			delete(l.twice, r.OutboxID)
		}
	}
}

// setAnswered may be called without Server.mu.
func (l *ledger) setAnswered(r *record, answered bool) {
	switch was := r.answered.Swap(answered); {
	case answered && !was:
		l.answered.Add(1)
	case was && !answered:
		l.answered.Add(-1)
	}
}

// ledgerQuery selects entries; empty fields match all.
type ledgerQuery struct {
	outboxID, to string
	since        time.Time
}

// find returns the selected records, oldest first. The scan by recipient and time runs outside the
// lock, on a copy of the list.
func (s *Server) find(q ledgerQuery) []*record {
	s.mu.Lock()
	var candidates []*record
	if q.outboxID == "" {
		candidates = slices.Clone(s.ledger.records.all())
	} else if c := s.ledger.byOutbox[q.outboxID]; c != nil {
		for r := c.oldest; r != nil; r = r.next {
			candidates = append(candidates, r)
		}
	}
	s.mu.Unlock()
	return slices.DeleteFunc(candidates, func(r *record) bool {
		return r.Time.Before(q.since) || q.to != "" && !r.hasRecipient(q.to)
	})
}

func (e *Entry) hasRecipient(address string) bool {
	m := sesmail.Mail{To: e.To, CC: e.CC, BCC: e.BCC}
	return m.HasRecipient(address)
}

func entries(records []*record) []Entry {
	list := make([]Entry, len(records))
	for i, r := range records {
		list[i] = r.entry()
	}
	return list
}

// Ledger returns the stored requests, oldest first.
func (s *Server) Ledger() []Entry { return entries(s.find(ledgerQuery{})) }

// Requests returns the requests with that value of the tag outbox_id.
func (s *Server) Requests(outboxID string) []Entry {
	if outboxID == "" {
		return nil
	}
	return entries(s.find(ledgerQuery{outboxID: outboxID}))
}

// Accepted returns the accepted requests with that recipient in to, cc or bcc; "@domain" matches
// the whole domain.
func (s *Server) Accepted(recipient string) []Entry {
	return slices.DeleteFunc(entries(s.find(ledgerQuery{to: recipient})), func(e Entry) bool { return !e.Accepted })
}

func (s *Server) countBroken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.broken++
}
