package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/chaos/stage"
	"email-gateway/shared/email"
)

// The judge's diagram is its own. When the gateway's changes, so must this one, by
// somebody who has thought about it.
func TestFollows_AsTheGatewayBelieves(t *testing.T) {
	t.Parallel()
	for _, previous := range append(email.EventTypes(), "") {
		for _, next := range email.EventTypes() {
			if got, want := follows(string(previous), string(next)), email.MayFollow(previous, next); got != want {
				t.Errorf("%s behind %q: %v, the gateway says %v", next, previous, got, want)
			}
		}
	}
	if !slices.Equal(queueNames, email.Queues()) {
		t.Errorf("the gateway's queues are %q", email.Queues())
	}
}

// told makes an email whose attempts take a second each, with these events; a word behind
// a colon is FAILED's "unknown", SENT's "feedback" and the error that another event names.
func told(j *Judge, r row, path string, begun time.Time) *row {
	r.id = fmt.Sprintf("email-%d", len(j.emails))
	j.emails[r.id] = &r
	var steps []step
	for i, word := range strings.Fields(path) {
		kind, about, _ := strings.Cut(word, ":")
		s := step{email: r.id, seq: i + 1, kind: kind, at: begun.Add(time.Duration(i) * time.Second / 3), unknown: about == "unknown", origin: about == "feedback"}
		if kind == scheduled || kind == unknown {
			s.code = cmp.Or(about, unknown)
		}
		if kind == attempt {
			s.attempt = fmt.Sprintf("%s-%d", r.id, i)
		}
		steps = append(steps, s)
	}
	j.readPath(steps)
	return &r
}

// A flag that no event explains is found, and so is an event that no flag tells of.
func TestTryFlags(t *testing.T) {
	t.Parallel()
	const try = "RECEIVED VALIDATED SENT_ATTEMPT "
	for name, tt := range map[string]struct {
		row  row
		path string
		want []string
	}{
		"plain":                              {row{status: sent}, try + "SENT", nil},
		"flagged for nothing":                {row{status: sent, unknown: true}, try + "SENT", []string{Groundless}},
		"announced for nothing":              {row{status: sent, duplicate: true}, try + "SENT", []string{Groundless}},
		"announced for a refusal":            {row{status: sent, duplicate: true}, try + "RETRY_SCHEDULED " + try + "SENT", []string{Groundless}},
		"announced for a doubt":              {row{status: sent, unknown: true, duplicate: true}, try + "OUTCOME_UNKNOWN RETRY_SCHEDULED " + try + "SENT", nil},
		"not announced":                      {row{status: sent, unknown: true}, try + "OUTCOME_UNKNOWN RETRY_SCHEDULED " + try + "SENT", []string{Duplicate}},
		"an answer that nobody could read":   {row{status: sent, unknown: true}, try + "OUTCOME_UNKNOWN:SES_TIMEOUT RETRY_SCHEDULED:SES_TIMEOUT " + try + "SENT", []string{Duplicate}},
		"refused after it was given up":      {row{status: sent, unknown: true}, try + "OUTCOME_UNKNOWN RETRY_SCHEDULED:SES_UNAVAILABLE " + try + "SENT", nil},
		"a doubt and no flag":                {row{status: sent}, try + "OUTCOME_UNKNOWN SENT", []string{Groundless}},
		"a doubt that feedback ended":        {row{status: sent}, try + "OUTCOME_UNKNOWN SENT:feedback DELIVERED", nil},
		"feedback behind the answer":         {row{status: sent}, try + "OUTCOME_UNKNOWN SENT DELIVERED", nil},
		"unreadable":                         {row{status: failed, unknown: true}, try + "FAILED:unknown", nil},
		"unreadable and sent again":          {row{status: sent, unknown: true, duplicate: true}, try + "FAILED:unknown REPLAYED " + try + "SENT", nil},
		"refused and sent again":             {row{status: sent, duplicate: true}, try + "FAILED REPLAYED " + try + "SENT", []string{Groundless}},
		"confirmed to be a second one":       {row{status: sent, duplicate: true}, try + "SENT DELIVERED DUPLICATE_CONFIRMED", nil},
		"given back, which is no doubt":      {row{status: sent, unknown: true}, try + "RELEASED " + try + "SENT", []string{Groundless}},
		"its second attempt is the doubtful": {row{status: failed, unknown: true}, try + "RETRY_SCHEDULED " + try + "OUTCOME_UNKNOWN FAILED", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := New(nil, load.Notes{}, nil)
			j.tryFlags(told(j, tt.row, tt.path, time.Now()))
			if got := promises(j); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

// An attempt that ended in OUTCOME_UNKNOWN has a reason: SES's answer, or a fault at that
// time, and as many attempts as it could meet.
func TestTryDoubts(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	hit := func(kind, subject string, at time.Duration) fault.Played {
		return fault.Played{Kind: kind, Subject: subject, From: begun.Add(at), To: begun.Add(at + time.Second)}
	}
	for name, tt := range map[string]struct {
		emails int
		asks   map[string]ask // by attempt; all of them are the third event of their email
		played []fault.Played
		want   int
	}{
		"nothing was broken":             {1, nil, nil, 1},
		"SES gave no answer":             {1, map[string]ask{"email-0-2": {}}, nil, 0},
		"SES had answered":               {1, map[string]ask{"email-0-2": {clear: true}}, nil, 1},
		"SES had answered, worker died":  {1, map[string]ask{"email-0-2": {clear: true}}, []fault.Played{hit("worker-kill", "worker-1", 0)}, 0},
		"the worker died before":         {1, nil, []fault.Played{hit("worker-kill", "worker-1", -time.Minute)}, 1},
		"the worker died later":          {1, nil, []fault.Played{hit("worker-kill", "worker-1", time.Minute)}, 1},
		"something else broke":           {1, nil, []fault.Played{hit("rabbitmq-kill", "rabbitmq", 0), hit("api-kill", "api-1", 0)}, 1},
		"the way to SES was cut":         {1, nil, []fault.Played{hit("ses-hang", "worker-1:ses", 0)}, 0},
		"as many as it had in its hands": {stage.Concurrency, nil, []fault.Played{hit("worker-kill", "worker-1", 0)}, 0},
		"one more":                       {stage.Concurrency + 1, nil, []fault.Played{hit("worker-kill", "worker-1", 0)}, 1},
		"one more, and Postgres too":     {stage.Concurrency + 1, nil, []fault.Played{hit("worker-kill", "worker-1", 0), hit("postgres-kill", "postgres", 0)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := New(nil, load.Notes{}, tt.played)
			for range tt.emails {
				told(j, row{status: failed, unknown: true}, "RECEIVED VALIDATED SENT_ATTEMPT OUTCOME_UNKNOWN FAILED", begun)
			}
			for attempt, a := range tt.asks {
				j.asks[attempt] = a
			}
			j.tryDoubts()
			got := 0
			for _, f := range j.findings() {
				got += f.Count
			}
			if got != tt.want {
				t.Errorf("found %d, want %d: %+v", got, tt.want, j.findings())
			}
		})
	}
}

// Behind the answer to its cancellation no email of a mailing is begun.
func TestReadPath_Stopped(t *testing.T) {
	t.Parallel()
	mailing := uuid.Must(uuid.NewV7())
	for name, tt := range map[string]struct {
		mailing string
		at      time.Duration // of the attempt, behind the cancellation
		want    []string
	}{
		"before":          {mailing.String(), -time.Minute, nil},
		"under way":       {mailing.String(), -near, nil},
		"behind":          {mailing.String(), time.Minute, []string{Promise}},
		"another mailing": {uuid.NewString(), time.Minute, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			j := New(nil, load.Notes{Stopped: map[uuid.UUID]time.Time{mailing: now}}, nil)
			told(j, row{status: sent, mailing: tt.mailing}, "RECEIVED VALIDATED SENT_ATTEMPT SENT", now.Add(tt.at))
			if got := promises(j); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTryFailure(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	cut := []fault.Played{{Kind: "ses-hang", Subject: "worker-1:ses", From: begun, To: begun.Add(time.Second)}}
	for name, tt := range map[string]struct {
		requests int
		played   []fault.Played
		want     []string
	}{
		"refused":                    {1, nil, nil},
		"never asked":                {0, nil, []string{Groundless}},
		"never asked, the way broke": {0, cut, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := New(nil, load.Notes{}, nil)
			r := told(j, row{status: failed, code: "SES_TIMEOUT"}, "RECEIVED VALIDATED SENT_ATTEMPT FAILED", begun)
			j.requests[r.id] = tt.requests
			j.tryFailure(r, excuses(tt.played))
			if got := promises(j); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			if c := j.Counts.Failed["SES_TIMEOUT"]; c.Count != 1 || c.NeverAsked != 1-tt.requests {
				t.Errorf("counted %+v", c)
			}
		})
	}
}
