package sessim

import (
	"maps"
	"slices"
	"strings"
)

// Summary are the counts of the ledger. All but the last three fields count since the last reset.
type Summary struct {
	Requests int64 `json:"requests"` // SendEmail, arrived in full
	Accepted int64 `json:"accepted"`
	Answered int64 `json:"answered"`

	// AcceptedOutboxIDs counts the distinct outbox ids of accepted requests.
	AcceptedOutboxIDs int64 `json:"acceptedOutboxIds"`

	Broken       int64 `json:"broken"`       // SendEmail with an incomplete body
	AccountCalls int64 `json:"accountCalls"` // GetAccount

	ByStatus map[int]int64    `json:"byStatus"`
	ByFault  map[string]int64 `json:"byFault"`

	// Remembered is the number of entries in the ledger. DuplicateCount is the number of outbox ids
	// with more than one accepted request among them, Duplicates lists up to 1,000 of them.
	Remembered     int         `json:"remembered"`
	DuplicateCount int         `json:"duplicateCount"`
	Duplicates     []Duplicate `json:"duplicates"`
}

// maxDuplicates limits the length of the summary.
const maxDuplicates = 1000

// Duplicate is an outbox id for which SES would have sent several mails.
type Duplicate struct {
	OutboxID string `json:"outboxId"`
	Accepted int    `json:"accepted"`
}

// Summary returns the counts of the ledger.
func (s *Server) Summary() Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ledger
	sum := Summary{
		Requests:          l.requests,
		Accepted:          l.accepted,
		Answered:          l.answered.Load(),
		AcceptedOutboxIDs: l.acceptedOutboxes,
		Broken:            l.broken,
		AccountCalls:      l.accountCalls,
		ByStatus:          maps.Clone(l.byStatus),
		ByFault:           maps.Clone(l.byFault),
		Remembered:        l.records.len(),
		DuplicateCount:    len(l.twice),
		Duplicates:        make([]Duplicate, 0, min(len(l.twice), maxDuplicates)),
	}
	for id, c := range l.twice {
		if len(sum.Duplicates) == maxDuplicates {
			break
		}
		sum.Duplicates = append(sum.Duplicates, Duplicate{OutboxID: id, Accepted: c.accepted})
	}
	slices.SortFunc(sum.Duplicates, func(a, b Duplicate) int { return strings.Compare(a.OutboxID, b.OutboxID) })
	return sum
}
