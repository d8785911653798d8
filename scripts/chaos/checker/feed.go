package checker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/load"
)

// Feeds are what the readers of GET /v1/events got.
type Feeds struct {
	// Followed was read during the run, Again from the beginning afterwards.
	Followed, Again []load.Feed
}

// FeedCounts are what was checked of the feed and the webhook endpoints.
type FeedCounts struct {
	Events  int `json:"events"`  // that readers got, from all tenants
	Pages   int `json:"pages"`   // read during the run
	Repeats int `json:"repeats"` // of requests without a response
	// Deliveries are events that the endpoints accepted, Requests the requests for them, and Outages
	// the times in which they were failing, by kind.
	Deliveries int            `json:"deliveries"`
	Requests   int            `json:"requests"`
	Outages    map[string]int `json:"outages"`
}

// stored is an event as Postgres has it.
type stored struct {
	email string
	seq   int
	kind  string
}

func (s stored) id() string { return fmt.Sprintf("%s.%d", s.email, s.seq) }

const companyEventsSQL = `
SELECT c.name, e.email_log_id, e.seq, e.type FROM email_events e
JOIN email_logs l ON l.outbox_id = e.email_log_id JOIN companies c ON c.id = l.company_id
ORDER BY e.email_log_id, e.seq`

// tenants are the companies by the number of their key.
func tenants() []string { return append(cluster.Companies(), cluster.QuietCompany) }

// CheckFeeds checks that each reader of GET /v1/events and each webhook endpoint got every event of
// its tenant, and that the order of the feed does not change.
func (c *Checker) CheckFeeds(ctx context.Context, feeds Feeds) error {
	rows, err := c.cluster.Database.QueryContext(ctx, companyEventsSQL)
	if err != nil {
		return fmt.Errorf("read the companies' events: %w", err)
	}
	defer rows.Close()
	events := make(map[string][]stored)
	for rows.Next() {
		var company string
		var s stored
		if err := rows.Scan(&company, &s.email, &s.seq, &s.kind); err != nil {
			return fmt.Errorf("read the companies' events: %w", err)
		}
		events[company] = append(events[company], s)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read the companies' events: %w", err)
	}
	check := feedCheck{c.Findings, &c.Counts.Feed}
	for i, company := range tenants() {
		check.feed(company, events[company], feeds.Followed[i], feeds.Again[i])
	}
	for _, e := range c.cluster.Receivers.Endpoints {
		check.endpoint(e, events[e.Company])
	}
	return nil
}

// feedCheck compares what readers of events and webhook endpoints got with the events in Postgres.
type feedCheck struct {
	findings *Findings
	counts   *FeedCounts
}

// feed compares what a reader got during the run with what another one gets afterwards: the same
// events in the same order, so that nothing has appeared behind a cursor that was given.
func (c feedCheck) feed(company string, events []stored, followed, again load.Feed) {
	c.counts.Events += len(followed.Events)
	c.counts.Pages += followed.Pages
	c.counts.Repeats += followed.Repeats
	for _, f := range []load.Feed{followed, again} {
		if f.Refused != "" {
			c.findings.Add(Promise, "GET /v1/events of %s: %s", company, f.Refused)
		}
	}
	if len(followed.Events) < len(again.Events) {
		c.findings.Add(MissingEvent, "the reader of %s got %d of %d events before the end of the run", company, len(followed.Events), len(again.Events))
	}
	for i, e := range followed.Events {
		if i >= len(again.Events) || again.Events[i] != e {
			c.findings.Add(EventOrder, "event %d of %s was %s for a reader during the run, and is another one now", i, company, e.ID)
			break
		}
	}
	last, seen, kinds := make(map[string]int), make(map[string]bool), make(map[string]string)
	for _, s := range events {
		kinds[s.id()] = s.kind
	}
	for _, e := range again.Events {
		switch {
		case seen[e.ID]:
			c.findings.Add(EventOrder, "the feed of %s has event %s twice", company, e.ID)
		case e.OutboxID == "": // an event of no email
		case kinds[e.ID] != e.Type:
			c.findings.Add(EventOrder, "the feed of %s has event %s with the type %s; the company's event has %q", company, e.ID, e.Type, kinds[e.ID])
		case e.ID != fmt.Sprintf("%s.%d", e.OutboxID, e.Seq):
			c.findings.Add(EventOrder, "event %d of email %s has the id %s", e.Seq, e.OutboxID, e.ID)
		case e.Seq != last[e.OutboxID]+1:
			c.findings.Add(EventOrder, "event %d of email %s follows its event %d", e.Seq, e.OutboxID, last[e.OutboxID])
		}
		seen[e.ID], last[e.OutboxID] = true, e.Seq
	}
	for _, s := range events {
		if !seen[s.id()] {
			c.findings.Add(MissingEvent, "the feed of %s lacks event %s, %s", company, s.id(), s.kind)
		}
	}
}

// publicType is the name of an event's type in a webhook.
func publicType(kind string) string { return "email." + strings.ToLower(kind) }

// sortedBySeq sorts the seqs of each email.
func sortedBySeq(of map[string][]int) map[string][]int {
	for _, seqs := range of {
		slices.Sort(seqs)
	}
	return of
}
