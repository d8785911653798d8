package sessim

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	"email-gateway/scripts/sessim/sesmail"
)

// Rule makes requests fail. The first rule that matches a request is applied.
type Rule struct {
	// Fault is a name of the table Faults.
	Fault string `json:"fault"`

	// Match selects the requests; empty matches all.
	Match Match `json:"match"`

	// Times is how often the rule is applied; 0 means always.
	Times int `json:"times,omitempty"`

	// Rate is the share of the matching requests that fails, 0 < Rate ≤ 1; 0 means all.
	Rate float64 `json:"rate,omitempty"`

	// AfterBytes is how much of the response body a truncating fault sends; 0 means half.
	AfterBytes int `json:"afterBytes,omitempty"`

	// DelayMS delays the response, or the end of the connection; 0 means the fault's own delay.
	DelayMS int64 `json:"delayMs,omitempty"`

	// Hits counts how often the rule was applied. The server writes it.
	Hits int `json:"hits"`
}

// Match selects requests. All fields must match; empty ones always do.
type Match struct {
	To       string `json:"to,omitempty"` // a recipient, or "@domain"
	OutboxID string `json:"outboxId,omitempty"`
	// AccessKey is the id of the key that signed the request. Only faults can be selected by it.
	AccessKey string `json:"accessKey,omitempty"`
}

// maxRules limits the number of rules to compare with each request.
const maxRules = 1000

// Inject adds a rule after the existing ones.
func (s *Server) Inject(rule Rule) error {
	switch _, known := s.faults[rule.Fault]; {
	case !known:
		return fmt.Errorf("inject fault: no fault is named %q", rule.Fault)
	case rule.Times < 0, rule.AfterBytes < 0, rule.DelayMS < 0:
		return fmt.Errorf("inject fault: times, afterBytes and delayMs must not be negative")
	case rule.Rate < 0 || rule.Rate > 1:
		return fmt.Errorf("inject fault: rate %v is not between 0 and 1", rule.Rate)
	}
	rule.Hits = 0
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.account.rules) == maxRules {
		return fmt.Errorf("inject fault: there are already %d rules", maxRules)
	}
	s.account.rules = append(s.account.rules, rule)
	return nil
}

// ClearFaults removes all rules.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.account.rules = nil
}

// Rules returns the rules in their order, including used-up ones.
func (s *Server) Rules() []Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Rule{}, s.account.rules...)
}

// applyRule finds the rule for the request and counts its hit.
func (a *account) applyRule(sub *submission) (Rule, bool) {
	for i := range a.rules {
		if r := &a.rules[i]; (r.Match.AccessKey == "" || r.Match.AccessKey == sub.accessKey) && r.wants(&sub.Mail) {
			r.Hits++
			return *r, true
		}
	}
	return Rule{}, false
}

func (r *Rule) wants(m *sesmail.Mail) bool {
	return (r.Times == 0 || r.Hits < r.Times) &&
		(r.Match.OutboxID == "" || r.Match.OutboxID == m.OutboxID) &&
		(r.Match.To == "" || m.HasRecipient(r.Match.To)) &&
		(r.Rate == 0 || rand.Float64() < r.Rate)
}

func (r Rule) delay(f Fault) time.Duration {
	if r.DelayMS > 0 {
		return time.Duration(r.DelayMS) * time.Millisecond
	}
	return f.delay
}

// addressFault is the fault requested by a recipient such as ana+sim-throttle-x7@example.com.
type addressFault struct {
	fault   Fault
	address string
	times   int // number of first requests that fail; 0 means all
}

var timesSuffix = regexp.MustCompile(`-x([0-9]{1,9})$`)

// faultByAddress returns the fault of the first recipient that requests one. An unknown name is an
// error of the request, so that a misspelt test fails.
func faultByAddress(faults map[string]Fault, m *sesmail.Mail) (asked addressFault, problem string) {
	for recipient := range m.Recipients {
		name, found := faultInAddress(recipient)
		if !found {
			continue
		}
		if _, isScenario := scenario(name); isScenario {
			continue // it requests events, and the mail is accepted
		}
		asked.address = strings.ToLower(sesmail.BareAddress(recipient))
		if suffix := timesSuffix.FindStringSubmatch(name); suffix != nil {
			name = strings.TrimSuffix(name, suffix[0])
			asked.times, _ = strconv.Atoi(suffix[1]) // digits, and few
		}
		if asked.fault, found = faults[name]; !found {
			return addressFault{}, fmt.Sprintf("The simulator has no fault '%s', which the recipient's address asks for.", name)
		}
		return asked, ""
	}
	return addressFault{}, ""
}

// faultInAddress returns what follows "sim-" at the start of the local part or "+sim-"
// within it.
func faultInAddress(address string) (name string, found bool) {
	local := sesmail.BareAddress(address)
	if at := strings.LastIndexByte(local, '@'); at >= 0 {
		local = local[:at]
	}
	if name, found = strings.CutPrefix(local, "sim-"); !found {
		_, name, found = strings.Cut(local, "+sim-")
	}
	return strings.ToLower(name), found
}

// tally counts requests by address, for faults with a limited number of times. It drops the older
// half at twice tallyHalf addresses.
type tally struct {
	recent, older map[string]int
}

const tallyHalf = 100_000

// next counts a request for the address and returns the number so far.
func (t *tally) next(address string) int {
	n, ok := t.recent[address]
	if !ok {
		n = t.older[address]
	}
	if t.recent == nil || !ok && len(t.recent) == tallyHalf {
		t.older, t.recent = t.recent, make(map[string]int)
	}
	t.recent[address] = n + 1
	return n + 1
}
