package checker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/sessim"
	"email-gateway/shared/email"
	"email-gateway/shared/email/emailtest"
)

// The checker has its own copy of the diagram: a change of the gateway's must be repeated there
// deliberately.
func TestFollows_EqualsTheGatewaysDiagram(t *testing.T) {
	t.Parallel()
	for _, previous := range append(email.EventTypes(), "") {
		for _, next := range email.EventTypes() {
			if got, want := follows(string(previous), string(next)), emailtest.MayFollow(previous, next); got != want {
				t.Errorf("%s after %q: %v, the gateway says %v", next, previous, got, want)
			}
		}
	}
	if !slices.Equal(queueNames, email.Queues()) {
		t.Errorf("the gateway's queues are %q", email.Queues())
	}
}

// addEmail adds an email with these events, a third of a second apart; the text after a colon is
// "unknown" for FAILED, "feedback" for SENT, and the error code of other events.
func addEmail(c *Checker, r row, path string, start time.Time) *row {
	r.id = fmt.Sprintf("email-%d", len(c.emails))
	c.emails[r.id] = &r
	var events []event
	for i, word := range strings.Fields(path) {
		kind, about, _ := strings.Cut(word, ":")
		s := event{email: r.id, seq: i + 1, kind: kind, at: start.Add(time.Duration(i) * time.Second / 3), unknown: about == "unknown", fromFeedback: about == "feedback"}
		if kind == scheduled || kind == unknown {
			s.code = cmp.Or(about, unknown)
		}
		if kind == attempt {
			s.attempt = attemptID(r.id, i)
		}
		events = append(events, s)
	}
	c.checkTimeline(events)
	return &r
}

func attemptID(email string, i int) string { return fmt.Sprintf("%s-%d", email, i) }

// A flag without an event that explains it is a finding, and so is an event without its flag.
func TestCheckFlags(t *testing.T) {
	t.Parallel()
	const try = "RECEIVED VALIDATED SENT_ATTEMPT "
	for name, tt := range map[string]struct {
		row  row
		path string
		want []string
	}{
		"plain":                                   {row{status: sent}, try + "SENT", nil},
		"flag without a reason":                   {row{status: sent, unknown: true}, try + "SENT", []string{Unexplained}},
		"duplicate flag without a reason":         {row{status: sent, duplicate: true}, try + "SENT", []string{Unexplained}},
		"duplicate flag after a refusal":          {row{status: sent, duplicate: true}, try + "RETRY_SCHEDULED " + try + "SENT", []string{Unexplained}},
		"duplicate flag after an unknown outcome": {row{status: sent, unknown: true, duplicate: true}, try + "OUTCOME_UNKNOWN RETRY_SCHEDULED " + try + "SENT", nil},
		"no duplicate flag":                       {row{status: sent, unknown: true}, try + "OUTCOME_UNKNOWN RETRY_SCHEDULED " + try + "SENT", []string{Duplicate}},
		"unreadable response, no flag":            {row{status: sent, unknown: true}, try + "OUTCOME_UNKNOWN:SES_TIMEOUT RETRY_SCHEDULED:SES_TIMEOUT " + try + "SENT", []string{Duplicate}},
		"late refusal":                            {row{status: sent, unknown: true}, try + "OUTCOME_UNKNOWN RETRY_SCHEDULED:SES_UNAVAILABLE " + try + "SENT", nil},
		"unknown outcome without a flag":          {row{status: sent}, try + "OUTCOME_UNKNOWN SENT", []string{Unexplained}},
		"unknown outcome resolved by feedback":    {row{status: sent}, try + "OUTCOME_UNKNOWN SENT:feedback DELIVERED", nil},
		"feedback after the response":             {row{status: sent}, try + "OUTCOME_UNKNOWN SENT DELIVERED", nil},
		"unreadable response":                     {row{status: failed, unknown: true}, try + "FAILED:unknown", nil},
		"unreadable response, sent again":         {row{status: sent, unknown: true, duplicate: true}, try + "FAILED:unknown REPLAYED " + try + "SENT", nil},
		"refused and sent again":                  {row{status: sent, duplicate: true}, try + "FAILED REPLAYED " + try + "SENT", []string{Unexplained}},
		"confirmed duplicate":                     {row{status: sent, duplicate: true}, try + "SENT DELIVERED DUPLICATE_CONFIRMED", nil},
		"released, which is no unknown outcome":   {row{status: sent, unknown: true}, try + "RELEASED " + try + "SENT", []string{Unexplained}},
		"second attempt unknown":                  {row{status: failed, unknown: true}, try + "RETRY_SCHEDULED " + try + "OUTCOME_UNKNOWN FAILED", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := New(nil, load.Records{}, nil)
			c.checkFlags(addEmail(c, tt.row, tt.path, time.Now()))
			if got := promises(c.Findings); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

// An attempt that ended in OUTCOME_UNKNOWN has a reason: SES's response, or a fault at that time,
// which explains at most as many attempts as it could affect.
func TestCheckDoubts(t *testing.T) {
	t.Parallel()
	start := time.Now()
	hit := func(kind, subject string, at time.Duration) fault.Injected {
		return fault.Injected{Kind: kind, Subject: subject, From: start.Add(at), To: start.Add(at + time.Second)}
	}
	request := func(status int, fault string, answered bool) map[string]sesRequest {
		return map[string]sesRequest{"email-0-2": newRequest(sessim.Entry{Status: status, Fault: fault, Answered: answered})}
	}
	for name, tt := range map[string]struct {
		emails      int
		sesRequests map[string]sesRequest // by attempt; all of them are the third event of their email
		injected    []fault.Injected
		want        int
	}{
		"no fault":                   {1, nil, nil, 1},
		"SES refused":                {1, request(429, "throttle", true), nil, 1},
		"SES refused, and throttles": {1, request(403, "access-denied", true), []fault.Injected{hit("ses-locked", "ses", 0)}, 1},
		"SES is unavailable":         {1, request(503, "unavailable-json", true), []fault.Injected{hit("ses-down", "ses", 0)}, 1},
		"a proxy is unavailable":     {1, request(503, "unavailable-html", true), nil, 0},
		"refused, link to SES hangs": {1, request(429, "throttle", true), []fault.Injected{hit("ses-hang", "every:ses", 0)}, 0},
		"refused, not answered":      {1, request(429, "throttle", false), nil, 0},
		"another program's link":     {1, nil, []fault.Injected{hit("postgres-cut", "api-1:postgres", 0)}, 1},
		"SES did not respond":        {1, map[string]sesRequest{"email-0-2": {}}, nil, 0},
		"SES responded":              {1, map[string]sesRequest{"email-0-2": {confirmed: true}}, nil, 1},
		"SES responded, worker died": {1, map[string]sesRequest{"email-0-2": {confirmed: true}}, []fault.Injected{hit("worker-kill", "worker-1", 0)}, 0},
		"the worker died before":     {1, nil, []fault.Injected{hit("worker-kill", "worker-1", -time.Minute)}, 1},
		"the worker died later":      {1, nil, []fault.Injected{hit("worker-kill", "worker-1", time.Minute)}, 1},
		"unrelated faults":           {1, nil, []fault.Injected{hit("rabbitmq-kill", "rabbitmq", 0), hit("api-kill", "api-1", 0)}, 1},
		"link to SES broken":         {1, nil, []fault.Injected{hit("ses-hang", "worker-1:ses", 0)}, 0},
		"as many as the concurrency": {cluster.Concurrency, nil, []fault.Injected{hit("worker-kill", "worker-1", 0)}, 0},
		"one more":                   {cluster.Concurrency + 1, nil, []fault.Injected{hit("worker-kill", "worker-1", 0)}, 1},
		"one more, and Postgres too": {cluster.Concurrency + 1, nil, []fault.Injected{hit("worker-kill", "worker-1", 0), hit("postgres-kill", "postgres", 0)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := New(nil, load.Records{}, tt.injected)
			for range tt.emails {
				addEmail(c, row{status: failed, unknown: true}, "RECEIVED VALIDATED SENT_ATTEMPT OUTCOME_UNKNOWN FAILED", start)
			}
			for attempt, a := range tt.sesRequests {
				c.sesRequests[attempt] = a
			}
			c.checkUnknownOutcomes()
			got := 0
			for _, f := range c.Findings.list() {
				got += f.Count
			}
			if got != tt.want {
				t.Errorf("found %d, want %d: %+v", got, tt.want, c.Findings.list())
			}
		})
	}
}
