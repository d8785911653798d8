package ctl

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

const (
	// A retry that is this late counts as lost by Redis.
	retryLost = 5 * time.Second
	// The window keeps about a second of work on a queue; a minute is out of the ordinary.
	longInQueue = time.Minute
)

// held names what keeps any worker from taking the email, and says whether
// something does.
func (x *explanation) held() bool {
	before := len(x.Findings)
	if x.at.SuspendedAt != nil {
		x.say("COMPANY_SUSPENDED", "Its company has been suspended since %s: %s. To let its emails go on: gatewayctl company resume %s",
			x.moment(*x.at.SuspendedAt), text(x.at.SuspendedReason), shellWord(x.Company))
	}
	if x.at.PausedAt != nil {
		x.say("LANE_PAUSED", "Its lane, %s's emails on the queue %s, has been paused since %s.", x.Company, text(x.at.Queue), x.moment(*x.at.PausedAt))
	}
	if x.at.ParkedUntil != nil && x.at.ParkedUntil.After(x.at.AskedAt) {
		x.say("LANE_PARKED", "Its lane, %s's emails on the queue %s, is parked until %s.", x.Company, text(x.at.Queue), x.moment(*x.at.ParkedUntil))
	}
	if x.at.HeldAt != nil {
		x.say("LANE_HELD", "Its lane, %s's emails on the queue %s, has been paused by an operator since %s: %s. To let it go on: gatewayctl lane resume --company %s",
			x.Company, text(x.at.Queue), x.moment(*x.at.HeldAt), text(x.at.HeldReason), shellWord(x.Company))
	}
	if x.at.GateHeldAt != nil {
		x.say("ALL_HELD", "An operator has held back every email since %s: %s. To let them go on: gatewayctl lane resume --all",
			x.moment(*x.at.GateHeldAt), text(x.at.GateHeldReason))
	}
	if x.at.GateShutAt != nil {
		x.say("GATE_SHUT", "The provider has taken no email of anybody since %s: %s. One email every 5 s asks whether it does again; then all go on, and no try is lost until then.",
			x.moment(*x.at.GateShutAt), text(x.at.GateReason))
	}
	return len(x.Findings) > before
}

// dispatcher says what keeps dispatchers from queueing, and returns whether nothing does.
func (x *explanation) dispatcher() bool {
	alive := x.alive("dispatcher", "NO_DISPATCHER")
	if state := best(alive, "redis"); !connected(state) {
		x.say("REDIS_DOWN", "The dispatcher cannot reach Redis (it reports %q), so nothing is queued. Emails wait in Postgres until Redis is back.", state)
		return false
	}
	return len(alive) > 0
}

// worker says what keeps workers from taking tasks, and returns whether nothing does.
func (x *explanation) worker() bool {
	alive := x.alive("worker", "NO_WORKER")
	if state := best(alive, "redis"); !connected(state) {
		x.say("REDIS_DOWN", "The worker cannot reach Redis (it reports %q), so it gets no tasks. Emails wait until Redis is back.", state)
		return false
	}
	if state := best(alive, "ses"); !connected(state) {
		x.say("SES_DOWN", "The worker cannot reach SES (it reports %q): a try that is made now comes back and is repeated.", state)
	}
	return len(alive) > 0
}

// alive returns the processes of a service that reported lately, and says so when
// there is none.
func (x *explanation) alive(service, code string) []store.ProcessStatus {
	var all, alive []store.ProcessStatus
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
		x.say(code, "No %s is running: none has reported within an hour. Start one; nothing else is needed.", service)
	default:
		last := slices.MinFunc(all, func(a, b store.ProcessStatus) int { return cmp.Compare(a.Age, b.Age) })
		x.say(code, "No %s is running: the last, %s, reported %s ago. Start one; nothing else is needed.", service, last.Instance, span(last.Age))
	}
	return alive
}

// best is what the processes say of a part: one of them that reaches it is enough.
func best(alive []store.ProcessStatus, part string) string {
	state := ""
	for _, p := range alive {
		if state = partState(p, part); connected(state) {
			break
		}
	}
	return state
}

// partState is what a process last said about one of the parts it talks to: its
// details hold {"redis": {"status": "connected"}, …}.
func partState(p store.ProcessStatus, part string) string {
	var details map[string]json.RawMessage
	var state struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(p.Details, &details) != nil || json.Unmarshal(details[part], &state) != nil {
		return ""
	}
	return state.Status
}

// connected takes silence for good news: a process that says nothing of a part may
// be of a release that does not report it.
func connected(state string) bool {
	return state == "" || state == "connected" || state == "ok"
}

// overdue says whether its deadline has passed: then nothing else matters.
func (x *explanation) overdue() bool {
	if x.at.ExpiresAt.After(x.at.AskedAt) {
		return false
	}
	x.say("OVERDUE", "Its deadline passed %s ago: it is not sent any more, and ends as EXPIRED.", x.since(x.at.ExpiresAt))
	x.dispatcher()
	return true
}

func (x *explanation) deadline() {
	x.say("DEADLINE", "If nothing changes it ends as EXPIRED at %s.", x.moment(x.at.ExpiresAt))
}

func (x *explanation) lastError() {
	if x.at.ErrorCode != nil {
		x.say("LAST_ERROR", "Its last try ended in %s.", x.failure())
	}
}

// failure is the last error, with the addresses in it masked.
func (x *explanation) failure() string {
	return failure(text(x.at.ErrorCode), email.MaskText(text(x.at.ErrorReason)))
}

func (x *explanation) moment(t time.Time) string { return moment(t, x.at.AskedAt) }
func (x *explanation) since(t time.Time) string  { return span(x.at.AskedAt.Sub(t)) }

// ended is "at TIME " for a time that is known: a purged row has lost some.
func (x *explanation) ended(t *time.Time) string {
	if t == nil {
		return ""
	}
	return "at " + x.moment(*t) + " "
}
