package chaos

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"email-gateway/scripts/chaos/checker"
	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/chaos/monitor"
	"email-gateway/scripts/chaos/receiver"
)

// Report is the result of a run.
type Report struct {
	Seed       uint64  `json:"seed"`
	Duration   float64 `json:"durationSeconds"`
	Only       string  `json:"only,omitempty"`
	Overlay    string  `json:"overlay,omitempty"`
	Durability string  `json:"durability"`
	Logs       string  `json:"logs"`

	Emails     int            `json:"emails"` // accepted one by one
	Mailings   int            `json:"mailings"`
	Rows       int            `json:"mailingRows"`       // rows of these mailings
	Cancelled  int            `json:"cancelledMailings"` // in addition to these mailings
	Steps      map[string]int `json:"steps"`             // further requests of tenants about accepted data
	Recipients int            `json:"recipients"`
	Responses  map[int]int    `json:"answers"`  // by HTTP status; 0 = no response
	Resolved   int            `json:"resolved"` // requests without a response that were repeated
	Replayed   int            `json:"replayed"` // of those, accepted by the first request
	Faults     int            `json:"faults"`
	Kinds      map[string]int `json:"kinds"`
	Kills      map[string]int `json:"kills"`
	Restarts   map[string]int `json:"restarts"` // by the supervisor, after a program had exited unexpectedly
	Settled    float64        `json:"settledSeconds"`
	Quiet      float64        `json:"quietSeconds"`
	Delivered  float64        `json:"deliveredSeconds"`
	Late       float64        `json:"lateSeconds"` // how much later than planned the faults were reverted
	Seen       monitor.Seen   `json:"seen"`

	Calibrated float64 `json:"calibratedRate"` // emails per second in the fault-free phase
	Outage     float64 `json:"outageSeconds"`  // time in which faults stopped all sending

	Counts   checker.Counts    `json:"counts"`
	Minimum  Minimum           `json:"minimum"`
	Below    []string          `json:"below"`  // minimums that were not reached
	Failed   []string          `json:"failed"` // faults that could not be injected
	Findings []checker.Finding `json:"findings"`
}

// OK reports whether every promise was kept in a run that reached its minimums.
func (r *Report) OK() bool { return len(r.Below)+len(r.Failed)+len(r.Findings) == 0 }

// FindingCount returns the number of findings of one promise.
func (r *Report) FindingCount(promise string) int {
	for _, f := range r.Findings {
		if f.Promise == promise {
			return f.Count
		}
	}
	return 0
}

func (r *Report) fill(c *cluster.Cluster, records load.Records, done fault.Result, counts checker.Counts, findings []checker.Finding) {
	r.Emails, r.Cancelled, r.Recipients, r.Steps = len(records.Emails), len(records.Stopped), counts.Recipients, records.Steps
	for _, m := range records.Mailings {
		if !m.CancelPlanned {
			r.Mailings++
			r.Rows += len(m.People)
		}
	}
	r.Responses, r.Resolved, r.Replayed = records.Statuses, records.Resolved, records.Replayed
	r.Faults, r.Kinds, r.Kills = done.Faults, done.Kinds, done.Kills
	r.Counts, r.Findings = counts, findings
	r.Restarts = make(map[string]int)
	for _, p := range c.Programs {
		if n := len(p.UnexpectedExits()); n > 0 {
			r.Restarts[p.Name] = n
		}
	}
}

// compareWithMinimum compares the run with its minimum.
func (r *Report) compareWithMinimum(done fault.Result) {
	r.Failed = done.Failed
	for _, m := range []struct {
		what      string
		got, want int
	}{
		{"emails", r.Emails + r.Rows, r.Minimum.Emails},
		{"mailings", r.Mailings, r.Minimum.Mailings},
		{"faults", r.Faults, r.Minimum.Faults},
		{"kinds of faults", len(r.Kinds), r.Minimum.Kinds},
	} {
		if m.got < m.want {
			r.Below = append(r.Below, fmt.Sprintf("%d %s, want at least %d", m.got, m.what, m.want))
		}
	}
	if q := r.Counts.Quiet; !q.Enough() {
		r.Below = append(r.Below, fmt.Sprintf("the latency of only %d emails of the quiet tenant was measured", q.Measured))
	}
	if r.Counts.Notifications == 0 {
		r.Below = append(r.Below, "no notification of SES")
	}
	f := r.Counts.Feed
	if f.Events == 0 || f.Deliveries == 0 {
		r.Below = append(r.Below, fmt.Sprintf("readers got %d events, and webhook endpoints %d", f.Events, f.Deliveries))
	}
	for _, mode := range receiver.Outages() {
		if r.Duration >= shortRun.Seconds() && f.Outages[string(mode)] == 0 {
			r.Below = append(r.Below, fmt.Sprintf("no webhook endpoint had an outage of the kind %s", mode))
		}
	}
	contents, batches := r.Counts.Contents, r.Counts.Batches
	for what, n := range map[string]int{
		"accepted batch": batches.Accepted, "partial batch": batches.Partial, "refused batch": batches.Refused, "email of a template": contents.Templates,
		"email with attachments": contents.Attached - contents.Mailings, "stored file": contents.Files,
	} {
		if n == 0 && r.Duration >= shortRun.Seconds() {
			r.Below = append(r.Below, "no "+what)
		}
	}
	for _, component := range append(cluster.ProgramNames(""), cluster.ServiceNames()...) {
		if got := r.Kills[component]; got < r.Minimum.Kills {
			r.Below = append(r.Below, fmt.Sprintf("%s was killed %d times, want at least %d", component, got, r.Minimum.Kills))
		}
	}
}

// Print writes the report as text.
func (r *Report) Print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n", r.Durability)
	fmt.Fprintf(out, "faults      %d of %d kinds: %s\n", r.Faults, len(r.Kinds), list(r.Kinds))
	fmt.Fprintf(out, "kills       %s\n", list(r.Kills))
	fmt.Fprintf(out, "restarts    %s (by the supervisor)\n", list(r.Restarts))
	fmt.Fprintf(out, "accepted    %d emails, %d mailings and %d that were cancelled (%d rows), %d statements about %d recipients\n",
		r.Emails, r.Mailings, r.Cancelled, r.Counts.Entries, r.Counts.Statements, r.Recipients)
	b := r.Counts.Batches
	fmt.Fprintf(out, "batches     %d accepted, of which %d partial; %d refused; %d without a 202 were not repeated, of which %d are stored; %d emails in all\n",
		b.Accepted, b.Partial, b.Refused, b.Unclear, b.Stored, b.Emails)
	contents := r.Counts.Contents
	fmt.Fprintf(out, "contents    %d emails arrived unchanged, %d of them made from a template\n", contents.Emails, contents.Templates)
	fmt.Fprintf(out, "attachments %d arrived whole in %d emails, of which %d of mailings; %d stored files\n",
		contents.Attachments, contents.Attached, contents.Mailings, contents.Files)
	fmt.Fprintf(out, "calibrated  %.0f emails/s without faults; %.0f s of outages; at least %d emails required\n", r.Calibrated, r.Outage, r.Minimum.Emails)
	fmt.Fprintf(out, "tenants     %s\n", list(r.Steps))
	fmt.Fprintf(out, "responses   %v; %d requests without a response were repeated, %d of them had been accepted\n", r.Responses, r.Resolved, r.Replayed)
	fmt.Fprintf(out, "emails      %s; %d with an unknown outcome\n", list(r.Counts.Rows), r.Counts.Unknown)
	fmt.Fprintf(out, "failed      %s\n", failures(r.Counts.Failed))
	fmt.Fprintf(out, "unknown     %d attempts have an unknown outcome; SES received no request for %d of them\n", r.Counts.UnknownOutcomes, r.Counts.NoRequest)
	fmt.Fprintf(out, "feedback    %d events were applied; they resolved %d unknown outcomes before the email was sent again\n", r.Counts.Notifications, r.Counts.ResolvedByFeedback)
	fmt.Fprintf(out, "SES         %d requests, %d accepted, %d emails more than once; %d rows are flagged\n",
		r.Counts.Requests, r.Counts.Accepted, r.Counts.Duplicates, r.Counts.Flagged)
	fmt.Fprintf(out, "events      %d\n", r.Counts.Events)
	f := r.Counts.Feed
	fmt.Fprintf(out, "feed        readers got %d events in %d pages, and repeated %d requests without a response\n", f.Events, f.Pages, f.Repeats)
	fmt.Fprintf(out, "webhooks    %d events in %d requests; outages of the endpoints: %s; all delivered %.1f s after the run\n",
		f.Deliveries, f.Requests, list(f.Outages), r.Delivered)
	q := r.Counts.Quiet
	fmt.Fprintf(out, "quiet       %d of %d emails of the quiet tenant measured: p50 %.0f ms, p99 %.0f ms, at the send rate %.0f ms, at most %.0f ms\n",
		q.Measured, q.Accepted, 1000*q.P50, 1000*q.P99, 1000*q.AtRate, 1000*q.Bound)
	fmt.Fprintf(out, "settled     %.1f s, queues empty %.1f s after the run; faults were reverted %.1f s late\n", r.Settled, r.Quiet, r.Late)
	fmt.Fprintf(out, "window      %s\n", window(r.Seen.Window))
	fmt.Fprintf(out, "at most     %d tasks waiting for a retry on a queue, %d archived; Redis %d MiB; %s\n",
		r.Seen.Retries, r.Seen.Archived, r.Seen.Redis>>20, mebibytes(r.Seen.RSS))
	fmt.Fprintf(out, "searched    %d keys of Redis, %d KiB of RabbitMQ with %d jobs, %d pages of metrics\n",
		r.Seen.Keys, r.Seen.Broker>>10, r.Seen.Messages, r.Seen.Metrics)
	fmt.Fprintf(out, "duplicates  %d of %d emails were sent more than once, %.2f %%\n", r.Counts.Duplicates, r.Counts.Taken, 100*r.Counts.DuplicateShare())
	fmt.Fprintf(out, "lost        %d\n", r.FindingCount(checker.Lost))
	fmt.Fprintf(out, "altered     %d emails arrived with another content; %d batches are stored in part\n",
		r.FindingCount(checker.Altered), r.FindingCount(checker.PartOfBatch))
	fmt.Fprintf(out, "unflagged   %d duplicates without a flag in their row\n", r.FindingCount(checker.Duplicate))
	for _, f := range r.Findings {
		fmt.Fprintf(out, "\nBROKEN: %s: %d\n  %s\n", f.Promise, f.Count, strings.Join(f.Examples, "\n  "))
	}
	for _, text := range r.Failed {
		fmt.Fprintln(out, "\nNOT INJECTED:", text)
	}
	for _, text := range r.Below {
		fmt.Fprintln(out, "\nTOO LITTLE:", text)
	}
	verdict := "every promise was kept"
	if !r.OK() {
		verdict = "FAILED; logs in " + r.Logs
	}
	fmt.Fprintf(out, "\nseed %d: %s\n", r.Seed, verdict)
}

// window describes how much of the limit was used.
func window(seen monitor.Window) string {
	return fmt.Sprintf("%d tasks in four states on %s, limit %d (%.0f %%)", seen.Tasks, seen.Queue, seen.Limit, 100*seen.Share())
}

func failures(by map[string]checker.Failures) string {
	if len(by) == 0 {
		return "none"
	}
	var items []string
	for _, code := range slices.Sorted(maps.Keys(by)) {
		items = append(items, fmt.Sprintf("%s %d (without a request to SES: %d)", code, by[code].Count, by[code].NoRequest))
	}
	return strings.Join(items, ", ")
}

func mebibytes(bytes map[string]int64) string {
	var items []string
	for _, name := range slices.Sorted(maps.Keys(bytes)) {
		items = append(items, fmt.Sprintf("%s %d MiB", name, bytes[name]>>20))
	}
	return strings.Join(items, ", ")
}

func list(counts map[string]int) string {
	if len(counts) == 0 {
		return "none"
	}
	var items []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		items = append(items, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(items, ", ")
}
