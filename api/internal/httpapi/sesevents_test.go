package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	"email-gateway/scripts/sessim"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/feedback"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/suppression"
	"email-gateway/shared/waittest"
)

const tried = "RECEIVED VALIDATED SENT_ATTEMPT "

func TestSESEvents_EndToEnd(t *testing.T) {
	t.Parallel()
	p := startProvider(t, nil)

	t.Run("delivered", func(t *testing.T) {
		id, token := p.attempt(t, "ana@example.com", nil)
		p.conclude(t, sent(id, token, p.call(t, id, token, "ana@example.com")))
		shown := p.timeline(t, id, "SENT DELIVERED")
		if got := steps(shown); got != tried+"SENT DELIVERED" {
			t.Error(got)
		}
	})
	t.Run("before the worker's commit", func(t *testing.T) {
		id, token := p.attempt(t, "sim-events-early@example.com", nil)
		message := p.call(t, id, token, "sim-events-early@example.com")
		shown := p.timeline(t, id, "SENT DELIVERED")
		if shown["status"] != "SENT" || shown["sesMessageId"] != message {
			t.Errorf("%v", shown)
		}
		if done := p.advance(t, false, sent(id, token, message)); !done.SameToken || done.Status != email.Sent {
			t.Errorf("the worker's own result is %+v", done)
		}
	})
	for _, late := range []struct {
		name string
		to   email.Status
		kind email.EventType
	}{{"retry", email.RetryScheduled, email.EventRetryScheduled}, {"failed", email.Failed, email.EventFailed}} {
		t.Run("unknown outcome, "+late.name, func(t *testing.T) {
			id, token := p.attempt(t, "ana@example.com", nil)
			p.advance(t, true, lost(id, token, late.to, late.kind))
			if shown := p.timeline(t, id, string(late.kind)); shown["outcomeUnknown"] != true {
				t.Fatalf("%v", shown)
			}
			p.call(t, id, token, "ana@example.com")
			shown := p.timeline(t, id, "SENT DELIVERED")
			if shown["status"] != "SENT" || shown["outcomeUnknown"] != false || shown["sesMessageId"] == nil || shown["errorCode"] != nil {
				t.Errorf("%v", shown)
			}
		})
	}
	t.Run("purged", func(t *testing.T) {
		id, token := p.attempt(t, "ana@example.com", nil)
		p.advance(t, true, sent(id, token, ""))
		p.Run(t, `DELETE FROM email_outbox WHERE id = $1`, id)
		p.call(t, id, token, "ana@example.com")
		p.timeline(t, id, "SENT DELIVERED")
	})
	t.Run("every kind", func(t *testing.T) {
		for name, want := range map[string]struct {
			ends     string
			delivery any
		}{
			"delivery-delay": {"SENT DELIVERY_DELAYED DELIVERED", "delivered"}, "reject": {"SENT REJECTED", "rejected"},
			"rendering-failure": {"SENT RENDERING_FAILED", "rejected"}, "click": {"SENT DELIVERED OPENED CLICKED", "delivered"},
			"subscription": {"SENT DELIVERED SUBSCRIPTION_CHANGED", "delivered"}, "events-reversed": {"SENT DELIVERED", "delivered"},
		} {
			to := "sim-" + name + "@example.com"
			id, token := p.attempt(t, to, nil)
			p.call(t, id, token, to)
			p.timeline(t, id, want.ends) // the api reads an email before its timeline
			if shown := p.timeline(t, id, want.ends); shown["delivery"] != want.delivery || shown["deliveryAt"] == nil {
				t.Errorf("%s: delivery %v at %v", name, shown["delivery"], shown["deliveryAt"])
			}
			// The trigger has these names of kinds too.
			if listed := p.do(t, call{Path: "/v1/emails?delivery=" + want.delivery.(string)}); !strings.Contains(listed.Body, id.String()) {
				t.Errorf("%s: not listed: %s", name, listed.Body)
			}
		}
	})
}

func TestSESEvents_TwiceIsOnce(t *testing.T) {
	t.Parallel()
	p := startProvider(t, nil)
	id, token := p.attempt(t, "sim-events-twice@example.com", nil)
	p.call(t, id, token, "sim-events-twice@example.com")
	p.awaitDelivered(t, 4)
	if got := steps(p.timeline(t, id, "")); got != tried+"SENT DELIVERED" {
		t.Error(got)
	}
	if !p.metric(t, `ses_events_total{kind="Delivery",result="repeated"} 1`) || !p.metric(t, `ses_events_total{kind="Send",result="applied"} 1`) {
		t.Error("the metrics do not count the repeated event")
	}
	if !p.metric(t, "ses_event_age_seconds_count 2") || !p.metric(t, `ses_event_age_seconds_bucket{le="300"} 2`) {
		t.Error("the metrics do not have the ages of the two events that were applied")
	}
}

func TestSESEvents_Suppress(t *testing.T) {
	t.Parallel()
	p := startProvider(t, nil)
	for name, want := range map[string]struct{ ends, reason string }{
		"bounce": {"BOUNCED", "BOUNCE"}, "bounce-suppressed": {"BOUNCED", ""}, "bounce-transient": {"BOUNCED", ""},
		"complaint": {"COMPLAINED", "COMPLAINT"}, "complaint-not-spam": {"COMPLAINED", ""},
	} {
		to, copied := "Ana+sim-"+name+"@example.com", name+"-copy@example.com"
		id, token := p.attempt(t, to, with("cc", []string{copied}))
		p.conclude(t, sent(id, token, p.call(t, id, token, to, copied)))
		p.timeline(t, id, want.ends)
		list, err := p.Store.Suppressions(t.Context(), p.Company, suppression.Filter{Address: strings.ToLower(to), Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if want.reason == "" && len(list) != 0 || want.reason != "" && (len(list) != 1 || string(list[0].Reason) != want.reason || list[0].Note == nil) {
			t.Errorf("%s: %+v", name, list)
		}
		if list, err = p.Store.Suppressions(t.Context(), p.Company, suppression.Filter{Address: copied, Limit: 10}); err != nil || len(list) != 0 {
			t.Errorf("%s: the copy is suppressed too: %+v, %v", name, list, err)
		}
	}
	var masked int
	if err := p.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM ses_events WHERE payload::text LIKE '%@example.com%'`).Scan(&masked); err != nil || masked != 0 {
		t.Errorf("%d stored notifications contain an address (%v)", masked, err)
	}
	if logged := p.Log.String(); strings.Contains(logged, "@example.com") {
		t.Error("an address is in the log")
	}
	waittest.Until(t, "counted", func() bool { return p.metric(t, "ses_account_suppressed_total 1") })
	if lines := p.Log.Count("is on the suppression list of the SES account"); lines != 1 {
		t.Errorf("logged %d times", lines)
	}
	if warnings := p.Log.Count(`"level":"WARN"`); warnings > 0 { // a mailing has thousands of bounces
		t.Errorf("%d warnings about single emails", warnings)
	}
}

// The worker did not count the email as sent.
func TestSESEvents_CountsConfirmed(t *testing.T) {
	t.Parallel()
	p := startProvider(t, nil)
	id, token := p.attempt(t, "ana@example.com", nil)
	p.advance(t, true, lost(id, token, email.Failed, email.EventFailed))
	p.call(t, id, token, "ana@example.com")
	p.timeline(t, id, "SENT DELIVERED")
	for _, line := range []string{`pipeline_final_state_total{state="SENT"} 1`, `pipeline_state_transitions_total{state="SENT"} 1`, `mailing_emails_total{status="sent"} 1`} {
		waittest.Until(t, line, func() bool { return p.metric(t, line) }) // counted after the commit
	}
}

// Sent again after an unknown outcome, and SES accepted both.
func TestSESEvents_Duplicate(t *testing.T) {
	t.Parallel()
	p := startProvider(t, nil)
	id, first := p.attempt(t, "sim-events-none@example.com", nil)
	second := uuid.New()
	p.advance(t, true, lost(id, first, email.RetryScheduled, email.EventRetryScheduled))
	p.claim(t, id, second)
	p.advance(t, true, sent(id, second, p.call(t, id, second, "sim-events-none@example.com")))
	if err := p.sim.InjectEvents(sessim.EventRule{DelayMS: 1}); err != nil {
		t.Fatal(err)
	}
	p.call(t, id, first, "sim-events-none@example.com")
	shown := p.timeline(t, id, "SENT DUPLICATE_CONFIRMED DELIVERED")
	if shown["possibleDuplicate"] != true || shown["outcomeUnknown"] != false {
		t.Errorf("%v", shown)
	}
	if !p.metric(t, "duplicates_confirmed_total 1") {
		t.Error("the metrics do not count the duplicate email")
	}
}

// flaky fails the first calls.
type flaky struct {
	httpapi.Store
	left atomic.Int64
}

func (f *flaky) RecordFeedback(ctx context.Context, fb feedback.Feedback) (feedback.Result, error) {
	if f.left.Add(-1) >= 0 {
		return feedback.Result{}, store.ErrUnavailable
	}
	return f.Store.RecordFeedback(ctx, fb)
}

func TestSESEvents_DatabaseAway(t *testing.T) {
	t.Parallel()
	p := startProvider(t, func(params *httpapi.Params) {
		away := &flaky{Store: params.Store}
		away.left.Store(3)
		params.Store = away
	})
	id, token := p.attempt(t, "ana@example.com", nil)
	p.call(t, id, token, "ana@example.com")
	p.timeline(t, id, "SENT DELIVERED")
	if counts := p.sim.Events(); counts.Retried != 3 {
		t.Errorf("%+v", counts)
	}
}

func TestSESEvents_Refused(t *testing.T) {
	t.Parallel()
	p := startProvider(t, nil)
	envelope := func(change func(map[string]any)) string {
		m := map[string]any{
			"Type": "Notification", "MessageId": uuid.NewString(), "TopicArn": eventsTopic, "Message": "{}", "Timestamp": time.Now().UTC().Format(time.RFC3339),
			"SignatureVersion": "2", "Signature": "AAAA", "SigningCertURL": p.simAt + "/sim/sns/SimpleNotificationService-simulator.pem",
		}
		if change != nil {
			change(m)
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	set := func(name string, value any) func(map[string]any) { return func(m map[string]any) { m[name] = value } }
	refused := 0
	for name, tt := range map[string]struct {
		body   string
		header map[string]string
		status int
		code   string
	}{
		"a made-up signature": {envelope(nil), nil, 403, "SNS_SIGNATURE_INVALID"},
		"another topic":       {envelope(set("TopicArn", eventsTopic+"2")), nil, 403, "SNS_TOPIC_UNKNOWN"},
		"another host":        {envelope(set("SigningCertURL", "https://attacker.example/a.pem")), nil, 403, "SNS_SIGNATURE_INVALID"},
		"no certificate":      {envelope(set("SigningCertURL", p.simAt+"/sim/sns/none.pem")), nil, 403, "SNS_SIGNATURE_INVALID"},
		"a made-up question": {envelope(func(m map[string]any) {
			m["Type"], m["Token"], m["SubscribeURL"] = "SubscriptionConfirmation", "t", "http://attacker.example/"
		}), nil, 403, "SNS_SIGNATURE_INVALID"},
		"raw delivery":           {`{"eventType":"Send"}`, map[string]string{"x-amz-sns-rawdelivery": "true"}, 400, "SNS_RAW_DELIVERY"},
		"raw without the header": {`{"eventType":"Send"}`, nil, 400, "SNS_MALFORMED"},
		"no JSON":                {"hello", nil, 400, "SNS_MALFORMED"},
		"a form":                 {"a=b", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"compressed":             {envelope(nil), map[string]string{"Content-Encoding": "gzip"}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"large":                  {envelope(set("Message", strings.Repeat("a", 600<<10))), nil, 413, "BODY_TOO_LARGE"},
		"larger":                 {strings.Repeat("a", 3<<20), nil, 413, "BODY_TOO_LARGE"},
	} {
		header := map[string]string{"Content-Type": "text/plain; charset=UTF-8"}
		for k, v := range tt.header {
			header[k] = v
		}
		r := p.do(t, call{Method: http.MethodPost, Path: "/v1/ses/events", Body: tt.body, Header: header, NoKey: true})
		if got := r.problem(t); r.Status != tt.status || got.Code != tt.code {
			t.Errorf("%s: %d %s", name, r.Status, r.Body)
		}
		if !strings.HasPrefix(name, "large") { // refused before it reaches the route
			refused++
		}
		if !p.metric(t, fmt.Sprintf(`ses_events_total{kind="other",result="refused"} %d`, refused)) {
			t.Errorf("%s: not counted once", name)
		}
	}
	if n := storetest.Ask[int](t, p.Database, `SELECT count(*) FROM ses_events`); n != 0 {
		t.Errorf("%d notifications were accepted", n)
	}
}

func TestSESEvents_NoTopics(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	r := g.do(t, call{Method: http.MethodPost, Path: "/v1/ses/events", Body: "{}", NoKey: true})
	if r.Status != http.StatusServiceUnavailable || r.problem(t).Code != "SES_EVENTS_DISABLED" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// SNS messages that are not events about our emails are accepted and change nothing.
func TestSESEvents_NotOurs(t *testing.T) {
	t.Parallel()
	p := startProvider(t, nil)
	id, token := p.attempt(t, "ana@example.com", nil)
	before := steps(p.timeline(t, id, ""))
	p.call(t, uuid.New(), token, "sim-bounce@example.com")
	p.awaitDelivered(t, 2)
	if after := steps(p.timeline(t, id, "")); after != before {
		t.Errorf("the timeline changed from %s to %s", before, after)
	}
	if !p.metric(t, `ses_events_total{kind="Bounce",result="unmatched"} 1`) || storetest.Ask[int](t, p.Database, `SELECT count(*) FROM suppressions`) != 0 || storetest.Ask[int](t, p.Database, `SELECT count(*) FROM ses_events`) != 0 {
		t.Error("the events are not counted as unmatched, are stored, or have suppressed an address")
	}
	if !slices.Contains(p.Routes, "POST /v1/ses/events") {
		t.Errorf("%v", p.Routes)
	}
}

// A message of the topic that is no event, such as those that EventBridge forwards, is refused. SES's test of the topic is
// ignored.
func TestSESEvents_NoEvents(t *testing.T) {
	t.Parallel()
	p := startProvider(t, nil)
	for message, want := range map[string]struct {
		status int
		result string
	}{
		`{"detail-type":"Email Bounced","source":"aws.ses","detail":{"eventType":"Bounce"}}`: {http.StatusBadRequest, "refused"},
		"Successfully validated SNS topic for Amazon SES event publishing.":                  {http.StatusOK, "ignored"},
	} {
		body, err := p.sim.Notification(message)
		if err != nil {
			t.Fatal(err)
		}
		r := p.do(t, call{Method: http.MethodPost, Path: "/v1/ses/events", Body: string(body), NoKey: true})
		if r.Status != want.status || !p.metric(t, fmt.Sprintf(`ses_events_total{kind="other",result=%q} 1`, want.result)) {
			t.Errorf("%s: %d %s", message, r.Status, r.Body)
		}
	}
	if logged := p.Log.String(); !strings.Contains(logged, "SNS message rejected") || !strings.Contains(logged, "not an SES event") {
		t.Error("the refused message is not logged")
	}
}
