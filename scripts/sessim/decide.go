package sessim

import (
	"net/http"
	"strings"
	"time"
)

// verdict is what happens to one request.
type verdict struct {
	Fault
	latency    time.Duration // before anything is written, whatever the fault
	delay      time.Duration // the fault's own
	afterBytes int

	// events are told of the mail, about these recipients, if it is accepted.
	events EventRule
	about  []string

	// record is the request's place in ledger, which a Reset may since have replaced.
	record *record
	ledger *ledger
}

// decide judges a request, and keeps the mail if it is accepted. From here on the
// ledger knows of it, before a byte of the answer is written.
func (s *Server) decide(sub *submission) verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.choose(sub)
	v.latency = time.Duration(s.settings.LatencyMS) * time.Millisecond
	v.Message = expand(v.Message, sub)
	if v.Accepted {
		sub.MessageID = newMessageID(sub.received)
		sub.Time = sub.received
		s.quota.add(sub.received, sub.recipientCount())
		s.inbox.add(&sub.Mail)
		if s.publisher != nil {
			v.events, v.about = s.eventsOf(&sub.Mail)
		}
	}
	v.ledger, v.record = s.ledger, s.ledger.add(sub, v.Fault)
	return v
}

// choose asks in the order in which SES would: the front door, the account, the
// request, the quotas, and at last what the test wants. A refusal on the way does not
// use up an injected fault. s.mu is held.
func (s *Server) choose(sub *submission) verdict {
	switch st := &s.settings; {
	case st.Unavailable:
		return s.plain(faultUnavailable)
	case !sub.signed:
		return s.plain(faultMissingToken)
	case st.Suspended:
		return s.plain(faultAccountSuspended)
	case st.Paused:
		return s.plain(faultSendingPaused)
	case sub.problem != "":
		return verdict{Fault: Fault{Status: http.StatusBadRequest, ErrorType: "BadRequestException", Message: sub.problem}}
	case st.DailyQuota > 0 && s.quota.sum(sub.received)+sub.recipientCount() > st.DailyQuota:
		return s.plain(faultDailyQuota)
	case st.EnforceRate && !s.rate.take(sub.received, st.MaxSendRate, float64(sub.recipientCount())):
		return s.plain(faultMaxSendRate)
	}
	if rule, ok := s.applyRule(&sub.Mail); ok {
		f := s.faults[rule.Fault]
		return verdict{Fault: f, delay: rule.delay(f), afterBytes: rule.AfterBytes}
	}
	if a := sub.asked; a.address != "" && (a.times == 0 || s.tally.next(a.address) <= a.times) {
		return verdict{Fault: a.fault, delay: a.fault.delay}
	}
	return verdict{Fault: Fault{Status: http.StatusOK, Accepted: true}}
}

func (s *Server) plain(name string) verdict { return verdict{Fault: s.faults[name]} }

// expand fills the placeholders of a message of the table.
func expand(message string, sub *submission) string {
	if !strings.Contains(message, "{") || sub.problem != "" {
		return message
	}
	var first string
	for r := range sub.recipients {
		first = bareAddress(r)
		break
	}
	return strings.NewReplacer("{from}", bareAddress(sub.From), "{to}", first, "{set}", sub.ConfigurationSet).Replace(message)
}
