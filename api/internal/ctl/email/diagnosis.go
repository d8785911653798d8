package email

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/email"
	"email-gateway/shared/store/emails"
	processstore "email-gateway/shared/store/process"
)

const (
	// A retry that is this late is treated as lost by Redis.
	retryLost = 5 * time.Second
	// The dispatcher keeps less than a second of work in a queue, so a minute is unusual.
	longInQueue = time.Minute
)

// held reports everything that blocks the email from being sent, and whether
// anything does.
func (x *explanation) held() bool {
	before := len(x.Findings)
	if x.at.SuspendedAt != nil {
		x.add("COMPANY_SUSPENDED", "Its company has been suspended since %s: %s. To resume it: gatewayctl company resume %s",
			x.relativeTime(*x.at.SuspendedAt), output.Optional(x.at.SuspendedReason), output.ShellWord(x.Company))
	}
	if x.at.MailingsPausedAt != nil {
		x.add("MAILINGS_PAUSED", "The reputation guard has paused all mailings of its company since %s. To see why: gatewayctl company reputation show %s",
			x.relativeTime(*x.at.MailingsPausedAt), output.ShellWord(x.Company))
	}
	if x.at.PausedAt != nil {
		x.add("LANE_PAUSED", "Its lane, %s's emails on the queue %s, has been paused since %s.", x.Company, output.Optional(x.at.Queue), x.relativeTime(*x.at.PausedAt))
	}
	if x.at.ParkedUntil != nil && x.at.ParkedUntil.After(x.at.AskedAt) {
		x.add("LANE_PARKED", "Its lane, %s's emails on the queue %s, is parked until %s.", x.Company, output.Optional(x.at.Queue), x.relativeTime(*x.at.ParkedUntil))
	}
	if x.at.HeldAt != nil {
		x.add("LANE_HELD", "Its lane, %s's emails on the queue %s, has been paused by an operator since %s: %s. To resume %s",
			x.Company, output.Optional(x.at.Queue), x.relativeTime(*x.at.HeldAt), output.Optional(x.at.HeldReason), x.resumption())
	}
	if x.at.BreakerHeldAt != nil {
		x.add("ALL_HELD", "An operator has paused all emails since %s: %s. To resume them: gatewayctl lane resume --all",
			x.relativeTime(*x.at.BreakerHeldAt), output.Optional(x.at.BreakerHeldReason))
	}
	if x.at.BreakerOpenedAt != nil {
		x.add("GATE_SHUT", "The circuit breaker of the provider has been open since %s: %s. One probe email is sent every 5 s; when one succeeds, sending resumes. Emails that wait use up no tries.",
			x.relativeTime(*x.at.BreakerOpenedAt), output.Optional(x.at.BreakerReason))
	}
	return len(x.Findings) > before
}

// resumption names what the narrowest command that resumes the email's lane resumes, and the command.
func (x *explanation) resumption() string {
	command := "gatewayctl lane resume --company " + output.ShellWord(x.Company)
	if x.at.LaneMailing.Valid {
		return "it: " + command + " --mailing " + x.at.LaneMailing.UUID.String()
	}
	return "it, and all other lanes of the company on that queue: " + command + " --queue " + output.Optional(x.at.Queue)
}

// dispatcher reports what prevents dispatchers from queueing, and whether they can.
func (x *explanation) dispatcher() bool {
	alive := x.alive("dispatcher", "NO_DISPATCHER")
	if state := best(alive, "redis"); !connected(state) {
		x.add("REDIS_DOWN", "The dispatcher cannot reach Redis (it reports %q), so nothing is queued. Emails wait in Postgres until Redis is back.", state)
		return false
	}
	return len(alive) > 0
}

// worker reports what prevents workers from taking tasks, and whether they can.
func (x *explanation) worker() bool {
	alive := x.alive("worker", "NO_WORKER")
	if state := best(alive, "redis"); !connected(state) {
		x.add("REDIS_DOWN", "The worker cannot reach Redis (it reports %q), so it gets no tasks. Emails wait until Redis is back.", state)
		return false
	}
	if state := best(alive, "ses"); !connected(state) {
		x.add("SES_DOWN", "The worker cannot reach SES (it reports %q): a try made now fails and is repeated.", state)
	}
	return len(alive) > 0
}

// alive returns the live processes of a service. If there is none, it reports that under code.
func (x *explanation) alive(service, code string) []processstore.Status {
	var all, alive []processstore.Status
	for _, p := range x.processes {
		if p.Service == service {
			all = append(all, p)
			if p.Live() {
				alive = append(alive, p)
			}
		}
	}
	switch {
	case len(alive) > 0:
	case len(all) == 0:
		x.add(code, "No %s is running: none has sent a heartbeat within the last hour. Start one; no other action is needed.", service)
	default:
		last := slices.MinFunc(all, func(a, b processstore.Status) int { return cmp.Compare(a.Age, b.Age) })
		x.add(code, "No %s is running: the last heartbeat, from %s, is %s old. Start one; no other action is needed.", service, last.Instance, output.Duration(last.Age))
	}
	return alive
}

// best returns the best state that any process reports of a component: one connected process is enough.
func best(alive []processstore.Status, part string) string {
	state := ""
	for _, p := range alive {
		if state = partState(p, part); connected(state) {
			break
		}
	}
	return state
}

// partState returns the state that a process last reported of a component. Its
// details hold {"redis": {"status": "connected"}, …}.
func partState(p processstore.Status, part string) string {
	var details map[string]json.RawMessage
	var state struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(p.Details, &details) != nil || json.Unmarshal(details[part], &state) != nil {
		return ""
	}
	return state.Status
}

// connected treats a missing state as connected: a process of another release may
// not report the component.
func connected(state string) bool {
	return state == "" || state == "connected" || state == "ok"
}

// overdue reports whether the deadline has passed; other findings are irrelevant then.
func (x *explanation) overdue() bool {
	if x.at.ExpiresAt.After(x.at.AskedAt) {
		return false
	}
	x.add("OVERDUE", "Its deadline passed %s ago: it will not be sent and becomes EXPIRED.", x.since(x.at.ExpiresAt))
	x.dispatcher()
	return true
}

func (x *explanation) deadline() {
	if emails.NoDeadline(x.at.ExpiresAt, x.at.AskedAt) {
		x.add("NO_DEADLINE", "It is an email of a mailing and has no deadline until its first try: it waits until it is sent, or its mailing is cancelled.")
		return
	}
	x.add("DEADLINE", "If nothing changes, it becomes EXPIRED at %s.", x.relativeTime(x.at.ExpiresAt))
}

func (x *explanation) lastError() {
	if x.at.ErrorCode != nil {
		x.add("LAST_ERROR", "Its last try failed with %s.", x.failure())
	}
}

// failure formats the last error with addresses masked.
func (x *explanation) failure() string {
	return output.CodeAndReason(output.Optional(x.at.ErrorCode), email.MaskText(output.Optional(x.at.ErrorReason)))
}

func (x *explanation) relativeTime(t time.Time) string { return output.RelativeTime(t, x.at.AskedAt) }

func (x *explanation) since(t time.Time) string { return output.Duration(x.at.AskedAt.Sub(t)) }

// ended returns "at TIME ", or nothing if the time is unknown: a purged row loses some.
func (x *explanation) ended(t *time.Time) string {
	if t == nil {
		return ""
	}
	return "at " + x.relativeTime(*t) + " "
}
