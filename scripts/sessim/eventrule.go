package sessim

import (
	"fmt"
	"slices"
	"strings"

	"email-gateway/scripts/sessim/sesmail"
)

// EventRule determines the events of a mail. The first rule that matches an accepted mail is
// applied; without one a recipient's address decides, and otherwise the events are Send and
// Delivery, once, in this order.
type EventRule struct {
	// Events are names of EventKinds, in the order in which they are published; an empty
	// list publishes none, nil the usual two.
	Events []string `json:"events"`

	// Match selects the mails; empty matches all. With an address in Match.To the events concern
	// that recipient, otherwise all of them.
	Match Match `json:"match"`

	// Times is how often the rule is applied; 0 means always.
	Times int `json:"times,omitempty"`

	// Rate is the share of the matching mails to which the rule is applied, 0 < Rate ≤ 1; 0
	// means all.
	Rate float64 `json:"rate,omitempty"`

	// Copies is how often each notification is delivered, as SNS may: 1 if it is 0.
	Copies int `json:"copies,omitempty"`

	// Reverse publishes them from the last to the first.
	Reverse bool `json:"reverse,omitempty"`

	// DelayMS is the delay of the first one.
	DelayMS int64 `json:"delayMs,omitempty"`

	// Early publishes them before the response to the request, which waits until the endpoint has
	// accepted them.
	Early bool `json:"early,omitempty"`

	// Hits counts how often the rule was applied. The server writes it.
	Hits int `json:"hits"`
}

// EventKinds lists the kinds of events: SES's own, some with a subtype after a colon.
func EventKinds() []string {
	return []string{
		"Send", "Delivery", "DeliveryDelay", "Bounce", "Bounce:Transient", "Bounce:OnAccountSuppressionList", "Complaint", "Complaint:not-spam",
		"Reject", "Rendering Failure", "Open", "Click", "Subscription",
	}
}

// scenario returns the events for a recipient such as ana+sim-bounce@example.com, or for one of
// SES's own mailbox simulator.
func scenario(name string) (EventRule, bool) {
	switch name {
	case "bounce":
		return EventRule{Events: []string{"Send", "Bounce"}}, true
	case "bounce-transient":
		return EventRule{Events: []string{"Send", "DeliveryDelay", "Bounce:Transient"}}, true
	case "bounce-suppressed":
		return EventRule{Events: []string{"Send", "Bounce:OnAccountSuppressionList"}}, true
	case "complaint":
		return EventRule{Events: []string{"Send", "Delivery", "Complaint"}}, true
	case "complaint-not-spam":
		return EventRule{Events: []string{"Send", "Delivery", "Complaint:not-spam"}}, true
	case "delivery-delay":
		return EventRule{Events: []string{"Send", "DeliveryDelay", "Delivery"}}, true
	case "reject":
		return EventRule{Events: []string{"Send", "Reject"}}, true
	case "rendering-failure":
		return EventRule{Events: []string{"Rendering Failure"}}, true
	case "open":
		return EventRule{Events: []string{"Send", "Delivery", "Open"}}, true
	case "click":
		return EventRule{Events: []string{"Send", "Delivery", "Open", "Click"}}, true
	case "subscription":
		return EventRule{Events: []string{"Send", "Delivery", "Subscription"}}, true
	case "events-none":
		return EventRule{Events: []string{}}, true
	case "events-twice":
		return EventRule{Copies: 2}, true
	case "events-reversed":
		return EventRule{Reverse: true}, true
	case "events-early":
		return EventRule{Early: true}, true
	case "events-late":
		return EventRule{DelayMS: 5000}, true
	}
	return EventRule{}, false
}

// scenarioOf returns the events that an address requests.
func scenarioOf(address string) (EventRule, bool) {
	if name, found := faultInAddress(address); found {
		return scenario(name)
	}
	local, domain, _ := strings.Cut(strings.ToLower(sesmail.BareAddress(address)), "@")
	if domain != "simulator.amazonses.com" {
		return EventRule{}, false
	}
	local, _, _ = strings.Cut(local, "+")
	switch local {
	case "bounce", "complaint":
		return scenario(local)
	case "suppressionlist":
		return scenario("bounce-suppressed")
	}
	return EventRule{}, false
}

// InjectEvents adds a rule after the existing ones.
func (s *Server) InjectEvents(rule EventRule) error {
	for _, kind := range rule.Events {
		if !slices.Contains(EventKinds(), kind) {
			return fmt.Errorf("inject events: no event is named %q", kind)
		}
	}
	if rule.Times < 0 || rule.Copies < 0 || rule.DelayMS < 0 {
		return fmt.Errorf("inject events: times, copies and delayMs must not be negative")
	}
	if rule.Rate < 0 || rule.Rate > 1 {
		return fmt.Errorf("inject events: rate must be between 0 and 1")
	}
	rule.Hits = 0
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.eventRules) == maxRules {
		return fmt.Errorf("inject events: there are already %d rules", maxRules)
	}
	s.eventRules = append(s.eventRules, rule)
	return nil
}

// ClearEventRules removes all rules for events.
func (s *Server) ClearEventRules() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eventRules = nil
}

// eventRules are the rules in their order. Server.mu guards them.
type eventRules []EventRule

// eventsOf returns the events of an accepted mail, and the recipients concerned.
func (rules eventRules) eventsOf(m *sesmail.Mail) (rule EventRule, about []string) {
	rule, about = rules.choose(m)
	if rule.Events == nil {
		rule.Events = []string{"Send", "Delivery"}
	}
	if rule.Reverse {
		rule.Events = slices.Clone(rule.Events)
		slices.Reverse(rule.Events)
	}
	if about == nil {
		about = sesmail.AddressesOf(m)
	}
	return rule, about
}

func (rules eventRules) choose(m *sesmail.Mail) (EventRule, []string) {
	for i := range rules {
		r := &rules[i]
		asFault := Rule{Match: r.Match, Times: r.Times, Rate: r.Rate, Hits: r.Hits}
		if !asFault.wants(m) {
			continue
		}
		r.Hits++
		if to := r.Match.To; to != "" && !strings.HasPrefix(to, "@") {
			return *r, []string{to}
		}
		return *r, nil
	}
	for address := range m.Recipients {
		if rule, found := scenarioOf(address); found {
			return rule, []string{address}
		}
	}
	return EventRule{}, nil
}
