package sessim

import (
	"net/http"
	"strings"
	"time"

	"email-gateway/scripts/sessim/sesmail"
)

// decision is the decision about one request.
type decision struct {
	Fault
	latency    time.Duration // before the response, for any fault
	delay      time.Duration // the fault's own
	afterBytes int

	// events are published about the mail and these recipients, if it is accepted.
	events EventRule
	about  []string

	// record is the request's entry in ledger, which a Reset may have replaced since.
	record *record
	ledger *ledger
}

// decide decides about a request, and stores the mail if it is accepted. It records the request in
// the ledger before any byte of the response is written.
func (s *Server) decide(sub *submission) decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.account.choose(sub)
	v.latency = time.Duration(s.account.settings.LatencyMS) * time.Millisecond
	v.Message = expand(v.Message, sub)
	if v.Accepted {
		sub.MessageID = sesmail.NewMessageID(sub.received)
		sub.Time = sub.received
		s.account.quota.add(sub.received, sub.RecipientCount())
		s.inbox.add(&sub.Mail)
		if s.publisher != nil {
			v.events, v.about = s.eventRules.eventsOf(&sub.Mail)
		}
	}
	v.ledger, v.record = s.ledger, s.ledger.add(sub, v.Fault)
	return v
}

// choose checks in the order of SES: availability and signature, the account, the request, the
// quotas, and finally the test's rules. An earlier refusal does not use up an injected fault.
func (a *account) choose(sub *submission) decision {
	switch st := &a.settings; {
	case st.Unavailable:
		return a.plain(faultUnavailable)
	case !sub.signed:
		return a.plain(faultMissingToken)
	case st.Suspended:
		return a.plain(faultAccountSuspended)
	case st.Paused:
		return a.plain(faultSendingPaused)
	case sub.problem != "":
		return decision{Fault: Fault{Status: http.StatusBadRequest, ErrorType: "BadRequestException", Message: sub.problem}}
	case st.DailyQuota > 0 && a.quota.sum(sub.received)+sub.RecipientCount() > st.DailyQuota:
		return a.plain(faultDailyQuota)
	case st.EnforceRate && !a.rate.take(sub.received, st.MaxSendRate, float64(sub.RecipientCount())):
		return a.plain(faultMaxSendRate)
	}
	if rule, ok := a.applyRule(sub); ok {
		f := a.faults[rule.Fault]
		return decision{Fault: f, delay: rule.delay(f), afterBytes: rule.AfterBytes}
	}
	if asked := sub.asked; asked.address != "" && (asked.times == 0 || a.tally.next(asked.address) <= asked.times) {
		return decision{Fault: asked.fault, delay: asked.fault.delay}
	}
	return decision{Fault: Fault{Status: http.StatusOK, Accepted: true}}
}

func (a *account) plain(name string) decision { return decision{Fault: a.faults[name]} }

// expand replaces the placeholders in a message of the table.
func expand(message string, sub *submission) string {
	if !strings.Contains(message, "{") || sub.problem != "" {
		return message
	}
	var first string
	for r := range sub.Recipients {
		first = sesmail.BareAddress(r)
		break
	}
	return strings.NewReplacer("{from}", sesmail.BareAddress(sub.From), "{to}", first, "{set}", sub.ConfigurationSet).Replace(message)
}
