package sessim_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/waittest"
)

// endpoint is a subscriber of the simulator's topic. It confirms the subscription, checks every
// signature and passes on the notifications.
type endpoint struct {
	sim      *sessim.Server
	url      string
	arrivals chan arrival
	answer   func(a arrival) int // nil = 200
}

// arrival is one received notification.
type arrival struct {
	MessageId, Type, Message, SignatureVersion, TopicArn string

	Kind      string
	MessageID string // of the mail
	Tags      map[string][]string
	Body      map[string]any
}

func startEndpoint(t *testing.T, p sessim.Publication, answer func(arrival) int) *endpoint {
	t.Helper()
	e := &endpoint{sim: sessim.New(sessim.Config{}), arrivals: make(chan arrival, 100), answer: answer}
	simulator := httptest.NewServer(e.sim)
	t.Cleanup(simulator.Close)
	t.Cleanup(e.sim.Close)
	e.url = simulator.URL
	subscriber := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.take(t, w, r) }))
	t.Cleanup(subscriber.Close)
	p.URL, p.BaseURL = subscriber.URL, simulator.URL
	if err := e.sim.Publish(p); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *endpoint) take(t *testing.T, w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var fields map[string]string
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	checkSignature(t, fields)
	if got := r.Header.Get("X-Amz-Sns-Message-Type"); got != fields["Type"] || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("headers %v of a %s", r.Header, fields["Type"])
	}
	if fields["Type"] == "SubscriptionConfirmation" {
		response, err := http.Get(fields["SubscribeURL"])
		if err != nil {
			t.Errorf("confirm: %v", err)
			return
		}
		response.Body.Close()
		// 400: another Publish has replaced this topic. Without a confirmation there are no events, so the test fails anyway.
		if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusBadRequest {
			t.Errorf("confirm: %s", response.Status)
		}
		return
	}
	var a arrival
	var event struct {
		EventType string
		Mail      struct {
			MessageID string `json:"messageId"`
			Tags      map[string][]string
		}
	}
	if json.Unmarshal(text, &a) != nil || json.Unmarshal([]byte(a.Message), &event) != nil || json.Unmarshal([]byte(a.Message), &a.Body) != nil {
		t.Errorf("cannot be read: %s", text)
	}
	a.Kind, a.MessageID, a.Tags = event.EventType, event.Mail.MessageID, event.Mail.Tags
	if e.answer != nil {
		if status := e.answer(a); status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
	}
	e.arrivals <- a
}

// checkSignature verifies the signature as a receiver of an SNS message must.
func checkSignature(t *testing.T, fields map[string]string) {
	t.Helper()
	response, err := http.Get(fields["SigningCertURL"])
	if err != nil {
		return // the simulator is being closed
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	block, _ := pem.Decode(text)
	if err != nil || block == nil {
		t.Errorf("no certificate: %v", err)
		return
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Error(err)
		return
	}
	var signed bytes.Buffer
	for _, name := range []string{"Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"} {
		if value, ok := fields[name]; ok {
			fmt.Fprintf(&signed, "%s\n%s\n", name, value)
		}
	}
	signature, err := base64.StdEncoding.DecodeString(fields["Signature"])
	if err != nil {
		t.Error(err)
	}
	key, _ := certificate.PublicKey.(*rsa.PublicKey)
	sum256, sum1 := sha256.Sum256(signed.Bytes()), sha1.Sum(signed.Bytes())
	if fields["SignatureVersion"] == "1" {
		err = rsa.VerifyPKCS1v15(key, crypto.SHA1, sum1[:], signature)
	} else {
		err = rsa.VerifyPKCS1v15(key, crypto.SHA256, sum256[:], signature)
	}
	if err != nil {
		t.Errorf("version %s: %v", fields["SignatureVersion"], err)
	}
}

// mail sends a mail to the simulator and returns the response's status.
func (e *endpoint) mail(t *testing.T, to ...string) int {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"FromEmailAddress": "a@acme.example", "Destination": map[string]any{"ToAddresses": to},
		"Content":   map[string]any{"Simple": map[string]any{"Subject": map[string]any{"Data": "s"}, "Body": map[string]any{"Text": map[string]any{"Data": "t"}}}},
		"EmailTags": []map[string]string{{"Name": "outbox_id", "Value": "o-1"}, {"Name": "attempt_id", "Value": "a-1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url+"/v2/email/outbound-emails", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "AWS4-HMAC-SHA256 x")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}

// next waits for n notifications.
func (e *endpoint) next(t *testing.T, n int) []arrival {
	t.Helper()
	var got []arrival
	for len(got) < n {
		select {
		case a := <-e.arrivals:
			got = append(got, a)
		case <-time.After(3 * time.Minute):
			t.Fatalf("%d of %d notifications: %v, counts %+v", len(got), n, kindsOf(got), e.sim.Events())
		}
	}
	return got
}

func kindsOf(list []arrival) []string {
	var kinds []string
	for _, a := range list {
		kinds = append(kinds, a.Kind)
	}
	return kinds
}

func TestPublish_ByAddress(t *testing.T) {
	t.Parallel()
	e := startEndpoint(t, sessim.Publication{}, nil)
	for to, want := range map[string]string{
		"ana@example.com":                         "Send Delivery",
		"sim-bounce@example.com":                  "Send Bounce",
		"ana+sim-bounce-transient@example.com":    "Send DeliveryDelay Bounce",
		"bounce+label@simulator.amazonses.com":    "Send Bounce",
		"suppressionlist@simulator.amazonses.com": "Send Bounce",
		"complaint@simulator.amazonses.com":       "Send Delivery Complaint",
		"success@simulator.amazonses.com":         "Send Delivery",
		"sim-complaint-not-spam@example.com":      "Send Delivery Complaint",
		"sim-delivery-delay@example.com":          "Send DeliveryDelay Delivery",
		"sim-reject@example.com":                  "Send Reject",
		"sim-rendering-failure@example.com":       "Rendering Failure",
		"sim-open@example.com":                    "Send Delivery Open",
		"sim-click@example.com":                   "Send Delivery Open Click",
		"sim-subscription@example.com":            "Send Delivery Subscription",
		"sim-events-twice@example.com":            "Send Send Delivery Delivery",
		"sim-events-reversed@example.com":         "Delivery Send",
		"sim-events-early@example.com":            "Send Delivery",
	} {
		if status := e.mail(t, to); status != http.StatusOK {
			t.Errorf("%s: %d", to, status)
		}
		n := len(strings.Fields(want))
		if strings.HasPrefix(want, "Rendering") {
			n = 1
		}
		got := e.next(t, n)
		if kinds := strings.Join(kindsOf(got), " "); kinds != want {
			t.Errorf("%s: %s, want %s", to, kinds, want)
		}
		for _, a := range got {
			if a.Tags["outbox_id"][0] != "o-1" || a.Tags["attempt_id"][0] != "a-1" || a.MessageID != e.sim.Inbox()[0].MessageID {
				t.Errorf("%s: %s is of the mail %s with the tags %v", to, a.Kind, a.MessageID, a.Tags)
			}
		}
		if strings.Contains(to, "twice") && (got[0].MessageId != got[1].MessageId || got[0].MessageId == got[2].MessageId) {
			t.Error("copies must have the same id as their notification")
		}
	}
	if status := e.mail(t, "sim-bounced@example.com"); status != http.StatusBadRequest {
		t.Errorf("status %d for a misspelt scenario", status)
	}
	waittest.Until(t, "no event waits", func() bool { return e.sim.Events().Pending == 0 }) // the endpoint has the last one before its response is read
	if counts := e.sim.Events(); counts.Refused != 0 || !counts.Confirmed {
		t.Errorf("%+v", counts)
	}
}

func TestPublish_RecipientsConcerned(t *testing.T) {
	t.Parallel()
	e := startEndpoint(t, sessim.Publication{}, nil)
	bounced := func() []any {
		got := e.next(t, 2)
		list, _ := got[1].Body["bounce"].(map[string]any)["bouncedRecipients"].([]any)
		return list
	}
	e.mail(t, "ana@example.com", "sim-bounce@example.com")
	if list := bounced(); len(list) != 1 || list[0].(map[string]any)["emailAddress"] != "sim-bounce@example.com" {
		t.Errorf("by address: %v", list)
	}
	for to, want := range map[string]int{"ana@example.com": 1, "@example.com": 2} {
		if err := e.sim.InjectEvents(sessim.EventRule{Events: []string{"Send", "Bounce"}, Match: sessim.Match{To: to}, Times: 1}); err != nil {
			t.Fatal(err)
		}
		e.mail(t, "ana@example.com", "bia@example.com")
		if list := bounced(); len(list) != want {
			t.Errorf("by the rule for %s: %v", to, list)
		}
	}
	if e.mail(t, "ana@example.com"); strings.Join(kindsOf(e.next(t, 2)), " ") != "Send Delivery" {
		t.Error("a used-up rule was applied")
	}
}

func TestPublish_Version1AndTopic(t *testing.T) {
	t.Parallel()
	e := startEndpoint(t, sessim.Publication{SignatureVersion: "1", TopicARN: "arn:aws:sns:sa-east-1:123456789012:t"}, nil)
	e.mail(t, "ana@example.com")
	if a := e.next(t, 1)[0]; a.SignatureVersion != "1" || a.TopicArn != "arn:aws:sns:sa-east-1:123456789012:t" {
		t.Errorf("%+v", a)
	}
}

// Mails with an interrupted response have events, refused ones have none.
func TestPublish_WithFaults(t *testing.T) {
	t.Parallel()
	e := startEndpoint(t, sessim.Publication{}, nil)
	e.mail(t, "sim-throttle@example.com")
	e.mail(t, "sim-events-none@example.com")
	if status := e.mail(t, "sim-cut-after@example.com"); status != 0 {
		t.Errorf("status %d of an interrupted response", status)
	}
	if got := e.next(t, 2); got[0].MessageID != e.sim.Accepted("sim-cut-after@example.com")[0].MessageID {
		t.Errorf("%+v", got)
	}
}

// Like SNS, it retries the same message after a 5xx, and not after a 4xx.
func TestPublish_Retries(t *testing.T) {
	t.Parallel()
	tries := map[string]int{} // one notification at a time is in flight
	ids := map[string]string{}
	e := startEndpoint(t, sessim.Publication{}, func(a arrival) int {
		tries[a.Kind]++
		if id := ids[a.Kind]; id != "" && id != a.MessageId {
			t.Errorf("%s has another id in a retry", a.Kind)
		}
		ids[a.Kind] = a.MessageId
		switch {
		case a.Kind == "Send" && tries[a.Kind] <= 3:
			return http.StatusServiceUnavailable
		case a.Kind == "DeliveryDelay":
			return http.StatusForbidden
		}
		return http.StatusOK
	})
	e.mail(t, "sim-delivery-delay@example.com")
	if got := kindsOf(e.next(t, 2)); !slices.Equal(got, []string{"Send", "Delivery"}) {
		t.Errorf("%v", got)
	}
	if diff := cmp.Diff(map[string]int{"Send": 4, "DeliveryDelay": 1, "Delivery": 1}, tries); diff != "" {
		t.Error(diff)
	}
}

// What the endpoint accepted is remembered once, under SNS's message id.
func TestPublish_Delivered(t *testing.T) {
	t.Parallel()
	e := startEndpoint(t, sessim.Publication{}, func(a arrival) int {
		if a.Kind == "Delivery" {
			return http.StatusBadRequest
		}
		return http.StatusOK
	})
	if err := e.sim.InjectEvents(sessim.EventRule{Events: []string{"Send", "Delivery", "Bounce:Transient"}, Copies: 2, Early: true}); err != nil {
		t.Fatal(err)
	}
	if status := e.mail(t, "ana@example.com"); status != http.StatusOK {
		t.Fatal(status)
	}
	var want []sessim.Delivered
	for i, a := range e.next(t, 4) {
		if i%2 == 0 {
			want = append(want, sessim.Delivered{OutboxID: "o-1", Kind: a.Kind, MessageID: a.MessageId})
		}
	}
	if diff := cmp.Diff(want, e.sim.Delivered()); diff != "" {
		t.Error(diff)
	}
}

// The response waits for early events.
func TestPublish_Early(t *testing.T) {
	t.Parallel()
	var answered, told context.Context
	answered, answer := context.WithCancel(t.Context())
	told, tell := context.WithCancel(t.Context())
	e := startEndpoint(t, sessim.Publication{}, func(arrival) int {
		tell()
		if answered.Err() != nil {
			t.Error("the response came before the events were accepted")
		}
		return http.StatusOK
	})
	e.mail(t, "sim-events-early@example.com")
	answer()
	if told.Err() == nil {
		t.Error("the response came before the first event")
	}
}

func TestPublish_Control(t *testing.T) {
	t.Parallel()
	e := startEndpoint(t, sessim.Publication{}, nil)
	do := func(method, path, body string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), method, e.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	for _, bad := range []string{`{"events":["Bounces"]}`, `{"copies":-1}`, `{"event":[]}`, `[]`} {
		if status, text := do(http.MethodPost, "/sim/events/rules", bad); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, status, text)
		}
	}
	for _, bad := range []string{`{"url":"ftp://x","baseUrl":"http://x"}`, `{"url":"http://x"}`, `{"url":"http://x","baseUrl":"http://y","signatureVersion":"3"}`, `{"url":"http://x","baseUrl":"http://y","retryPauseMs":-1}`} {
		if status, text := do(http.MethodPut, "/sim/events", bad); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, status, text)
		}
	}
	if status, text := do(http.MethodPost, "/sim/events/rules", `{"events":[],"match":{"to":"@example.com"}}`); status != http.StatusCreated {
		t.Errorf("%d %s", status, text)
	}
	if _, text := do(http.MethodGet, "/sim/events", ""); !strings.Contains(text, `"to":"@example.com"`) && !strings.Contains(text, `"to": "@example.com"`) {
		t.Errorf("the rule is not listed: %s", text)
	}
	if status, _ := do(http.MethodGet, "/sim/sns/confirm?Action=ConfirmSubscription&Token=made-up", ""); status != http.StatusBadRequest {
		t.Errorf("an invalid token: %d", status)
	}
	if status, _ := do(http.MethodDelete, "/sim/events/rules", ""); status != http.StatusNoContent {
		t.Errorf("delete: %d", status)
	}
	if status, text := do(http.MethodPut, "/sim/events", `{"url":""}`); status != http.StatusOK || strings.Contains(text, `"confirmed":true`) {
		t.Errorf("end: %d %s", status, text)
	}
	e.mail(t, "ana@example.com")
	if counts := e.sim.Events(); counts != (sessim.EventCounts{}) {
		t.Errorf("%+v", counts)
	}
}
