package checker

import "email-gateway/scripts/chaos/receiver"

// endpoint checks that a webhook endpoint has accepted each event of its company that its filter
// selects, and the events of each email in order: an event is first accepted after all earlier ones of
// its email.
func (c feedCheck) endpoint(e *receiver.Endpoint, events []stored) {
	seen := e.Result()
	counts := c.counts
	counts.Deliveries += len(seen.Accepted)
	counts.Requests += seen.Requests
	if counts.Outages == nil {
		counts.Outages = make(map[string]int)
	}
	for mode, n := range seen.Outages {
		counts.Outages[string(mode)] += n
	}
	for _, fault := range seen.Faults {
		c.findings.Add(Promise, "endpoint %s: %s", e.Name, fault)
	}
	selected, wanted := make(map[string][]int), make(map[string]stored)
	for _, s := range events {
		if e.Selects(publicType(s.kind)) {
			selected[s.email] = append(selected[s.email], s.seq)
			wanted[s.id()] = s
		}
	}
	selected = sortedBySeq(selected)
	got := make(map[string]int) // by email
	for _, a := range seen.Accepted {
		s, known := wanted[a.ID]
		switch {
		case a.Email == "": // an event of no email
			continue
		case !known || a.Email != s.email || a.Seq != s.seq || a.Type != publicType(s.kind):
			c.findings.Add(EventOrder, "endpoint %s got %s as event %d of email %s, %s", e.Name, a.ID, a.Seq, a.Email, a.Type)
			continue
		}
		delete(wanted, a.ID)
		if n := got[a.Email]; selected[a.Email][n] != a.Seq {
			c.findings.Add(EventOrder, "endpoint %s got event %s before event %d", e.Name, a.ID, selected[a.Email][n])
		}
		got[a.Email]++
	}
	for id, s := range wanted {
		c.findings.Add(MissingEvent, "endpoint %s did not get event %s, %s", e.Name, id, s.kind)
	}
}
