package checker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/sessim"
)

// A final state without a reason is a finding.
func TestCheckReason(t *testing.T) {
	t.Parallel()
	start, mailing := time.Now(), uuid.Must(uuid.NewV7())
	expires := start.Add(cluster.EmailTTL)
	down := func(kind, subject string, length time.Duration) []fault.Injected {
		return []fault.Injected{{Kind: kind, Subject: subject, From: start, To: start.Add(length)}}
	}
	over := row{status: expired, processed: expires}
	planned := []load.Mailing{{ID: mailing, CancelPlanned: true}}
	for name, tt := range map[string]struct {
		row      row
		records  load.Records // of its address "a"
		requests int
		injected []fault.Injected
		want     []string
	}{
		"sent":                          {row{status: sent}, load.Records{}, 1, nil, nil},
		"not cancelled by its tenant":   {row{status: cancelled}, load.Records{}, 0, nil, []string{Promise}},
		"cancelled by its tenant":       {row{status: cancelled}, submitted(load.Content{Cancel: true}), 0, nil, nil},
		"cancelled with its mailing":    {row{status: cancelled, mailing: mailing.String()}, load.Records{Mailings: planned}, 0, nil, nil},
		"cancelled in another mailing":  {row{status: cancelled, mailing: uuid.NewString()}, load.Records{Mailings: planned}, 0, nil, []string{Promise}},
		"suppressed by its tenant":      {row{status: suppressed}, submitted(load.Content{Suppressed: true}), 0, nil, nil},
		"not suppressed by its tenant":  {row{status: suppressed}, load.Records{}, 0, nil, []string{Promise}},
		"sent to a suppressed address":  {row{status: sent}, submitted(load.Content{Suppressed: true}), 1, nil, []string{Promise}},
		"expired without a fault":       {over, load.Records{}, 0, nil, []string{Unexplained}},
		"expired, faults":               {over, load.Records{}, 0, down("postgres-kill", "postgres", 4*time.Minute), nil},
		"expired, few faults":           {over, load.Records{}, 0, down("postgres-kill", "postgres", 3*time.Minute), []string{Unexplained}},
		"expired, one worker":           {over, load.Records{}, 0, down("worker-freeze", "worker-1", 5*time.Minute), []string{Unexplained}},
		"expired, its company held":     {row{status: expired, processed: expires, company: "Caos 1"}, load.Records{}, 0, down("operator-lanes", "Caos 1", 4*time.Minute), nil},
		"expired, another company held": {row{status: expired, processed: expires, company: "Caos 2"}, load.Records{}, 0, down("operator-lanes", "Caos 1", 4*time.Minute), []string{Unexplained}},
		"expired, no file storage":      {over, load.Records{}, 0, down("s3-kill", "s3", 4*time.Minute), []string{Unexplained}},
		"attached, no file storage":     {over, submitted(load.Content{Attachments: []load.Attachment{{}}}), 0, down("s3-kill", "s3", 4*time.Minute), nil},
		"expired early":                 {row{status: expired, processed: expires.Add(-time.Second)}, load.Records{}, 0, down("postgres-kill", "postgres", 5*time.Minute), []string{Promise}},
		"due when it is sent":           {row{status: sent}, submitted(load.Content{SendAt: start.Add(earlyTolerance)}), 1, nil, nil},
		"sent before its sendAt":        {row{status: sent}, submitted(load.Content{SendAt: start.Add(2 * earlyTolerance)}), 1, nil, []string{Promise}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := New(nil, tt.records, tt.injected)
			tt.row.id, tt.row.to, tt.row.expires = "1", "a", expires
			if c.requests["1"] = tt.requests; tt.requests > 0 {
				c.first["1"] = start
			}
			c.checkReason(&tt.row)
			if got := promises(c.Findings); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func submitted(content load.Content) load.Records {
	return load.Records{Contents: map[string]load.Content{"a": content}}
}

// A FAILED without a reason is a finding, also if the email was sent again.
func TestCheckFailures(t *testing.T) {
	t.Parallel()
	start := time.Now()
	const try, again = "RECEIVED VALIDATED SENT_ATTEMPT ", "RECEIVED VALIDATED SENT_ATTEMPT RETRY_SCHEDULED:SES_X "
	hang := func(at time.Duration) []fault.Injected {
		return []fault.Injected{{Kind: "ses-hang", Subject: "worker-1:ses", From: start.Add(at), To: start.Add(at + time.Second)}}
	}
	refusal := func(status int, fault string) *sessim.Entry {
		return &sessim.Entry{Status: status, Fault: fault, Answered: true}
	}
	atLeast, atMost := row{status: failed}, row{status: failed, delivery: atMostOnce, unknown: true}
	accepted := &sessim.Entry{Status: 200, Accepted: true, Answered: true}
	for name, tt := range map[string]struct {
		row      row
		path     string
		request  *sessim.Entry // of each attempt; nil: none
		injected []fault.Injected
		want     []string
	}{
		"refused":                             {atLeast, try + "FAILED", refusal(400, "message-rejected"), nil, nil},
		"refused, but the outcome is unknown": {row{status: failed, unknown: true}, try + "OUTCOME_UNKNOWN FAILED:unknown", refusal(400, "message-rejected"), nil, []string{Unexplained}},
		"throttled once":                      {atLeast, try + "FAILED", refusal(429, "throttle"), nil, []string{Unexplained}},
		"throttled once, sent again":          {row{status: sent}, try + "FAILED REPLAYED " + try + "SENT", refusal(429, "throttle"), nil, []string{Unexplained}},
		"throttled five times":                {atLeast, strings.Repeat(again, 4) + try + "FAILED", refusal(429, "throttle"), nil, []string{Unexplained}},
		"five attempts":                       {atLeast, strings.Repeat(again, 4) + try + "FAILED", refusal(503, "unavailable-json"), nil, nil},
		"five attempts, one before REPLAYED":  {atLeast, try + "FAILED REPLAYED " + strings.Repeat(again, 3) + try + "FAILED", refusal(503, "unavailable-json"), nil, []string{Unexplained}},
		"one of five released":                {atLeast, try + "RELEASED " + strings.Repeat(again, 3) + try + "FAILED", refusal(503, "unavailable-json"), nil, []string{Unexplained}},
		"unknown outcome, not sent again":     {row{status: failed, unknown: true}, try + "OUTCOME_UNKNOWN FAILED:unknown", &sessim.Entry{}, nil, []string{Unexplained}},
		"unknown outcome, at most once":       {atMost, try + "OUTCOME_UNKNOWN FAILED:unknown", &sessim.Entry{}, nil, nil},
		"unreadable response":                 {row{status: failed, unknown: true}, try + "FAILED:unknown", &sessim.Entry{Status: 200, Accepted: true, Answered: true, Fault: "truncated"}, nil, nil},
		"readable response":                   {row{status: failed, unknown: true}, try + "FAILED:unknown", accepted, nil, []string{Unexplained}},
		"response lost on the link":           {row{status: failed, unknown: true}, try + "FAILED:unknown", accepted, hang(0), nil},
		"invalid":                             {atLeast, "RECEIVED VALIDATION_FAILED FAILED", nil, hang(0), []string{Unexplained}},
		"invalid after an attempt":            {atLeast, strings.Repeat(again, 5) + "RECEIVED VALIDATION_FAILED FAILED", refusal(503, "unavailable-json"), hang(0), []string{Unexplained}},
		"no request":                          {atLeast, strings.Repeat(again, 4) + try + "FAILED", nil, nil, []string{Unexplained}},
		"no request, link broken":             {atLeast, strings.Repeat(again, 4) + try + "FAILED", nil, hang(0), nil},
		"no request, link broken long before": {atLeast, strings.Repeat(again, 4) + try + "FAILED", nil, hang(-time.Minute), []string{Unexplained}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := New(nil, load.Records{}, tt.injected)
			r := addEmail(c, tt.row, tt.path, start)
			for i := range strings.Fields(tt.path) {
				if tt.request != nil {
					c.sesRequests[attemptID(r.id, i)] = newRequest(*tt.request)
				}
			}
			c.checkFailures()
			if got := promises(c.Findings); !slices.Equal(got, tt.want) {
				t.Errorf("found %+v, want %q", c.Findings.list(), tt.want)
			}
		})
	}
}

// No email is sent after the cancellation of its mailing, nor in a pause.
func TestCheckClosures(t *testing.T) {
	t.Parallel()
	from := time.Now()
	mailing, newer := idAt(from.Add(-time.Hour), 1), idAt(from, 2)
	hold := func(kind, subject string) []fault.Injected {
		return []fault.Injected{{Kind: kind, Subject: subject, Begun: from, Ending: from.Add(time.Minute)}}
	}
	stopped := load.Records{Stopped: map[uuid.UUID]time.Time{mailing: from}}
	paused := load.Records{Pauses: []load.Pause{{Mailing: mailing, From: from, To: from.Add(time.Minute)}}}
	for name, tt := range map[string]struct {
		row      row
		records  load.Records
		injected []fault.Injected
		at       time.Duration // of the attempt, from the closure on
		want     []string
	}{
		"before the cancellation":         {row{mailing: mailing.String()}, stopped, nil, -time.Minute, nil},
		"in flight":                       {row{mailing: mailing.String()}, stopped, nil, clockTolerance, nil},
		"after the cancellation":          {row{mailing: mailing.String()}, stopped, nil, time.Hour, []string{Promise}},
		"another mailing":                 {row{mailing: newer.String()}, stopped, nil, time.Minute, nil},
		"in a pause":                      {row{mailing: mailing.String()}, paused, nil, 30 * time.Second, []string{Promise}},
		"after the pause":                 {row{mailing: mailing.String()}, paused, nil, time.Minute, nil},
		"all held":                        {row{mailing: newer.String()}, load.Records{}, hold("operator-gate", "gate"), 30 * time.Second, []string{Promise}},
		"its company held":                {row{company: "Caos 1"}, load.Records{}, hold("operator-lanes", "Caos 1"), 30 * time.Second, []string{Promise}},
		"its company held, mailing":       {row{company: "Caos 1", mailing: mailing.String()}, load.Records{}, hold("operator-lanes", "Caos 1"), 30 * time.Second, []string{Promise}},
		"its company held, newer mailing": {row{company: "Caos 1", mailing: newer.String()}, load.Records{}, hold("operator-lanes", "Caos 1"), 30 * time.Second, nil},
		"another company held":            {row{company: "Caos 2"}, load.Records{}, hold("operator-lanes", "Caos 1"), 30 * time.Second, nil},
		"not held":                        {row{company: "Caos 1"}, load.Records{}, []fault.Injected{{Kind: "operator-lanes", Subject: "Caos 1", From: from, To: from.Add(time.Hour)}}, 30 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := New(nil, tt.records, tt.injected)
			tt.row.status = sent
			addEmail(c, tt.row, "RECEIVED VALIDATED SENT_ATTEMPT SENT", from.Add(tt.at-2*time.Second/3))
			if got := promises(c.Findings); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

// Each notification that an api accepted is stored as it was.
func TestCompareNotifications(t *testing.T) {
	t.Parallel()
	n := sessim.Delivered{OutboxID: "1", Kind: "Send", MessageID: "a"}
	c := New(nil, load.Records{}, nil)
	c.compareNotifications([]sessim.Delivered{n}, map[sessim.Delivered]bool{n: true})
	if got := promises(c.Findings); len(got) > 0 {
		t.Errorf("found %q", got)
	}
	for _, other := range []sessim.Delivered{{}, {OutboxID: "2", Kind: "Send", MessageID: "a"}, {OutboxID: "1", Kind: "Delivery", MessageID: "a"}} {
		c := New(nil, load.Records{}, nil)
		c.compareNotifications([]sessim.Delivered{n}, map[sessim.Delivered]bool{other: true})
		if got := promises(c.Findings); !slices.Equal(got, []string{Lost}) {
			t.Errorf("%+v instead of %+v: found %q", other, n, got)
		}
	}
}
