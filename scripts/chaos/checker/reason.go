package checker

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/chaos/load"
)

const (
	// earlyTolerance: a worker may claim an email a second before it is due.
	earlyTolerance = time.Second + clockTolerance/2
	// maxAttempts is the default of EMAIL_MAX_ATTEMPTS.
	maxAttempts = 5
	// expiredShare is the least part of an expired email's life in which faults stopped it. In the rest of its 5 minutes a slow
	// machine may still have recovered from the faults, and have sent older emails.
	expiredShare = 0.75
)

// checkReason checks that a final state other than SENT and FAILED has a reason, and that the email was not sent too
// early. Without this check a gateway that expires or cancels every email would pass.
func (c *Checker) checkReason(r *row) {
	submitted := c.records.Contents[r.to] // of a mailing's email the zero value
	if at, sent := c.first[r.id]; sent && at.Before(submitted.SendAt.Add(-earlyTolerance)) {
		c.Findings.Add(Promise, "email %s was sent at %s, before its sendAt %s", r.id, at.Format(time.StampMilli), submitted.SendAt.Format(time.StampMilli))
	}
	switch {
	case submitted.Suppressed && (c.requests[r.id] > 0 || r.status != suppressed && r.status != expired),
		!submitted.Suppressed && r.status == suppressed:
		c.Findings.Add(Promise, "email %s is %s after %d requests to SES; its tenant suppressed the address: %v", r.id, r.status, c.requests[r.id], submitted.Suppressed)
	case r.status == cancelled && !submitted.Cancel && !c.cancelPlanned(r.mailing):
		c.Findings.Add(Promise, "email %s is CANCELLED, and its tenant did not cancel it", r.id)
	case r.status == expired:
		start := r.expires.Add(-cluster.EmailTTL)
		if r.processed.Before(r.expires) {
			c.Findings.Add(Promise, "email %s is EXPIRED at %s, before its deadline %s", r.id, r.processed.Format(time.StampMilli), r.expires.Format(time.StampMilli))
		} else if stopped := fault.Covered(c.stops(r, submitted), start, r.expires); stopped < time.Duration(expiredShare*float64(cluster.EmailTTL)) {
			c.Findings.Add(Unexplained, "email %s is EXPIRED, and faults stopped it for only %.0f s of its life from %s on", r.id, stopped.Seconds(), start.Format(time.StampMilli))
		}
	}
}

func (c *Checker) cancelPlanned(mailing string) bool {
	return slices.ContainsFunc(c.records.Mailings, func(m load.Mailing) bool { return m.CancelPlanned && m.ID.String() == mailing })
}

// stops lists the times in which the email could not be sent: faults that stop all emails, or those with attachments, and pauses.
func (c *Checker) stops(r *row, submitted load.Content) []fault.Injected {
	var list []fault.Injected
	attached := len(submitted.Attachments) > 0 || r.mailing != ""
	for _, p := range c.injected {
		if p.Reach() == fault.ReachesAll || p.Holds(r.company) || attached && strings.HasPrefix(p.Kind, cluster.S3) {
			list = append(list, p)
		}
	}
	for _, p := range c.records.Pauses {
		if p.Mailing.String() == r.mailing {
			list = append(list, fault.Injected{From: p.From, To: p.To})
		}
	}
	return list
}

// checkFailures checks that every FAILED has a reason, and counts emails that are FAILED by error code.
func (c *Checker) checkFailures() {
	var all []failure
	for _, r := range c.emails {
		if r.status == failed {
			n := c.Counts.Failed[r.code]
			n.Count++
			if c.requests[r.id] == 0 {
				n.NoRequest++
			}
			c.Counts.Failed[r.code] = n
		}
		if r.timeline != nil {
			all = append(all, r.timeline.failures...)
		}
	}
	slices.SortFunc(all, func(a, b failure) int { return a.at.Compare(b.at) })
	list := explanations(c.injected)
	for _, f := range all {
		if why := c.unexplained(f, list); why != "" {
			c.Findings.Add(Unexplained, "email %s (%s) FAILED at %s with %s: %s; attempts %+v", f.row.id, f.row.delivery, f.at.Format(time.StampMilli), f.code, why, f.tries)
		}
	}
}

// unexplained returns why a failure has no reason, or "".
func (c *Checker) unexplained(f failure, list []explanation) string {
	if f.previous == "VALIDATION_FAILED" || len(f.tries) == 0 {
		return "the load submits valid emails"
	}
	last := f.tries[len(f.tries)-1]
	request, asked := c.sesRequests[last.attempt]
	counted, requests := 0, 0
	for _, t := range f.tries {
		a, arrived := c.sesRequests[t.attempt]
		throttled := t.end == scheduled && slices.Contains([]string{"throttle", "max-send-rate", "plain-429", "limit-exceeded"}, a.fault)
		if t.end != "RELEASED" && !t.inOutage && !throttled {
			counted++
		}
		if arrived {
			requests++
		}
	}
	switch {
	case !f.unknown && slices.Contains([]string{"message-rejected", "bad-request"}, request.fault):
		return ""
	case f.unknown && f.previous == attempt: // an unreadable 200
		if asked && request.status == 200 && (!request.confirmed || explain(list, f.from, f.at)) {
			return ""
		}
		return "the response to the last attempt was readable"
	case f.unknown && f.row.delivery == atMostOnce:
		return "" // checkUnknownOutcomes asks for its reason
	case counted < maxAttempts:
		return "it has attempts left"
	case requests == 0 && !f.unknown && !explain(list, f.from, f.at):
		return "SES received no request, and there was no fault"
	}
	return ""
}

// closure is a time in which a mailing, a company or all emails must not be sent.
type closure struct {
	what     string
	mailing  string // "": not of a single mailing
	hold     fault.Injected
	from, to time.Time
}

// uploading is the longest time from a mailing's id to its commit: its lane may be missing from an operator's hold of that time.
const uploading = 30 * time.Second

// closures lists the confirmed cancellations and pauses of mailings, and the operator's holds.
func closures(records load.Records, injected []fault.Injected) []closure {
	var list []closure
	for id, at := range records.Stopped {
		list = append(list, closure{"its mailing was cancelled with 200", id.String(), fault.Injected{}, at, at.AddDate(1, 0, 0)})
	}
	for _, p := range records.Pauses {
		list = append(list, closure{"its mailing was paused with 200", p.Mailing.String(), fault.Injected{}, p.From, p.To})
	}
	for _, p := range injected {
		if strings.HasPrefix(p.Kind, "operator-") && !p.Begun.IsZero() {
			list = append(list, closure{"an operator paused its lane", "", p, p.Begun, p.Ending})
		}
	}
	return list
}

// checkClosures checks that an attempt did not begin within a closure: a claim in flight is older than the response.
func (c *Checker) checkClosures(r *row, at time.Time) {
	for _, s := range c.closures {
		if !at.After(s.from.Add(clockTolerance)) || !at.Before(s.to.Add(-clockTolerance)) {
			continue
		}
		held := s.mailing == "" && s.hold.Holds(r.company) && (s.hold.Kind == "operator-gate" || !c.uploadedSince(r.mailing, s.from))
		if held || s.mailing != "" && s.mailing == r.mailing {
			c.Findings.Add(Promise, "email %s was sent at %s, after %s at %s", r.id, at.Format(time.StampMilli), s.what, s.from.Format(time.StampMilli))
		}
	}
}

func (c *Checker) uploadedSince(mailing string, at time.Time) bool {
	id, err := uuid.Parse(mailing)
	return err == nil && acceptedAt(id).After(at.Add(-uploading))
}
