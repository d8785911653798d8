package sessim

import (
	"slices"
	"time"

	"email-gateway/scripts/sessim/sesmail"
)

// inbox stores the last accepted mails. Server.mu guards it; a Mail in it is never changed.
type inbox struct {
	maxMails int
	maxBytes int64
	bytes    int64
	mails    queue[*sesmail.Mail]
	byID     map[string]*sesmail.Mail
}

func newInbox(maxMails int, maxBytes int64) *inbox {
	return &inbox{maxMails: maxMails, maxBytes: maxBytes, byID: make(map[string]*sesmail.Mail)}
}

func (b *inbox) add(m *sesmail.Mail) {
	b.mails.push(m)
	b.byID[m.MessageID] = m
	b.bytes += m.Size()
	// The newest one is kept at any size, so that its sender can see it.
	for b.mails.len() > 1 && (b.mails.len() > b.maxMails || b.bytes > b.maxBytes) {
		oldest := b.mails.pop()
		delete(b.byID, oldest.MessageID)
		b.bytes -= oldest.Size()
	}
}

// inboxQuery selects mails; empty fields match all.
type inboxQuery struct {
	outboxID, to string
	since        time.Time
	limit        int
}

// search returns the selected mails, newest first.
func (s *Server) search(q inboxQuery) []*sesmail.Mail {
	s.mu.Lock()
	mails := append([]*sesmail.Mail{}, s.inbox.mails.all()...) // not nil: it becomes a JSON list
	s.mu.Unlock()
	slices.Reverse(mails)
	mails = slices.DeleteFunc(mails, func(m *sesmail.Mail) bool {
		return m.Time.Before(q.since) ||
			q.outboxID != "" && m.OutboxID != q.outboxID ||
			q.to != "" && !m.HasRecipient(q.to)
	})
	if q.limit > 0 && len(mails) > q.limit {
		mails = mails[:q.limit]
	}
	return mails
}

func (s *Server) mail(messageID string) *sesmail.Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inbox.byID[messageID]
}

// Inbox returns the stored accepted mails, newest first.
func (s *Server) Inbox() []sesmail.Mail {
	mails := s.search(inboxQuery{})
	list := make([]sesmail.Mail, len(mails))
	for i, m := range mails {
		list[i] = *m
	}
	return list
}
