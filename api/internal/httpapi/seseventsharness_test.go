package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	"email-gateway/api/internal/sns"
	"email-gateway/scripts/sessim"
	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/waittest"
)

const eventsTopic = "arn:aws:sns:us-east-1:123456789012:ses-events"

// provider is a gateway with a simulator that sends it events of accepted emails.
type provider struct {
	*gateway
	sim   *sessim.Server
	simAt string
}

func startProvider(t *testing.T, change func(*httpapi.Params)) *provider {
	t.Helper()
	p := &provider{sim: sessim.New(sessim.Config{})}
	server := httptest.NewServer(p.sim)
	t.Cleanup(server.Close)
	t.Cleanup(p.sim.Close)
	p.simAt = server.URL
	trusted, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	p.gateway = start(t, func(params *httpapi.Params) {
		params.Events = sns.New(sns.Params{Topics: []string{eventsTopic}, Trusted: trusted})
		if change != nil {
			change(params)
		}
	})
	if err := p.sim.Publish(sessim.Publication{URL: p.URL + "/v1/ses/events", BaseURL: server.URL}); err != nil {
		t.Fatal(err)
	}
	return p
}

// attempt accepts an email over the api and claims it like a worker.
func (p *provider) attempt(t *testing.T, to string, change func(fields)) (id, token uuid.UUID) {
	t.Helper()
	id, token = uuid.MustParse(p.accept(t, emailBody(func(f fields) {
		f["to"] = to
		person("email", to)(f)
		if change != nil {
			change(f)
		}
	}))), uuid.New()
	p.claim(t, id, token)
	return id, token
}

func (p *provider) claim(t *testing.T, id, token uuid.UUID) {
	t.Helper()
	step := func(kind email.EventType, metadata map[string]any) email.Event {
		return email.Event{Type: kind, At: time.Now().UTC(), Metadata: metadata}
	}
	p.advance(t, true, outbox.Transition{
		ID: id, Guard: outbox.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1,
		Events: []email.Event{step(email.EventReceived, nil), step(email.EventValidated, nil), step(email.EventSentAttempt, map[string]any{"attemptId": token})},
	})
}

func (p *provider) advance(t *testing.T, want bool, tr outbox.Transition) outbox.Advanced {
	t.Helper()
	done, err := p.Store.Advance(t.Context(), tr)
	if err != nil || done.Applied != want {
		t.Fatalf("%s: %+v, %v", tr.Status, done, err)
	}
	return done
}

// conclude is advance for a result that may be overtaken by SES's event.
func (p *provider) conclude(t *testing.T, tr outbox.Transition) {
	t.Helper()
	if done, err := p.Store.Advance(t.Context(), tr); err != nil || !done.Applied && !done.SameToken {
		t.Fatalf("%s: %+v, %v", tr.Status, done, err)
	}
}

// sent records an acceptance like the worker.
func sent(id, token uuid.UUID, message string) outbox.Transition {
	return outbox.Transition{
		ID: id, Guard: outbox.GuardAttempt, Token: token, Status: email.Sent, SESMessageID: message,
		Events: []email.Event{{Type: email.EventSent, At: time.Now().UTC()}},
	}
}

// lost records an unknown outcome like the worker.
func lost(id, token uuid.UUID, to email.Status, kind email.EventType) outbox.Transition {
	now := time.Now().UTC()
	return outbox.Transition{
		ID: id, Guard: outbox.GuardAttempt, Token: token, Status: to, OutcomeUnknown: true, PossibleDuplicate: to != email.Failed, DeadLetter: to == email.Failed,
		ErrorCode: email.CodeOutcomeUnknown,
		Events:    []email.Event{{Type: email.EventOutcomeUnknown, At: now}, {Type: kind, At: now}},
	}
}

// call sends the email to the simulator like a worker, and returns the message id.
func (p *provider) call(t *testing.T, id, token uuid.UUID, to ...string) string {
	t.Helper()
	text := map[string]string{"Data": "Olá", "Charset": "UTF-8"}
	body, err := json.Marshal(map[string]any{
		"FromEmailAddress": "billing@acme.example", "Destination": map[string]any{"ToAddresses": to[:1], "CcAddresses": to[1:]},
		"Content": map[string]any{"Simple": map[string]any{"Subject": text, "Body": map[string]any{"Text": text}}},
		"EmailTags": []map[string]string{
			{"Name": "outbox_id", "Value": id.String()}, {"Name": "attempt_id", "Value": token.String()}, {"Name": "company_id", "Value": p.Company.String()},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.simAt+"/v2/email/outbound-emails", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "AWS4-HMAC-SHA256 x")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct{ MessageId string }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%d, %v", response.StatusCode, err)
	}
	return answer.MessageId
}

// timeline waits until the email's timeline ends with the events, and returns the email.
func (p *provider) timeline(t *testing.T, id uuid.UUID, ends string) (shown map[string]any) {
	t.Helper()
	for waited := range waittest.Rounds() {
		if shown = p.do(t, call{Path: "/v1/email/" + id.String()}).json(t); strings.HasSuffix(steps(shown), ends) {
			break
		}
		if waited > waittest.Limit {
			t.Fatalf("%s, want an end with %s; %+v", steps(shown), ends, p.sim.Events())
		}
	}
	return shown
}

func steps(shown map[string]any) string {
	var types []string
	events, _ := shown["events"].([]any)
	for _, e := range events {
		step, _ := e.(map[string]any)
		types = append(types, fmt.Sprint(step["type"]))
	}
	return strings.Join(types, " ")
}

// awaitDelivered waits until the simulator has delivered n notifications.
func (p *provider) awaitDelivered(t *testing.T, delivered int64) {
	t.Helper()
	waittest.Until(t, fmt.Sprint(delivered, " notifications are delivered"), func() bool {
		counts := p.sim.Events()
		return counts.Delivered == delivered && counts.Pending == 0
	})
}

func (p *provider) metric(t *testing.T, line string) bool {
	t.Helper()
	return strings.Contains(p.metrics(t), "\n"+line+"\n")
}
