// Package providertest is the test suite for implementations of provider.Sender. An adapter's test
// calls Run with its Sender and a Backend that speaks the provider's protocol on loopback:
//
//	providertest.Run(t, func(t *testing.T) (provider.Sender, providertest.Backend) { … })
//
// The suite checks what the pipeline relies on: one request per Send, an unchanged message at the
// provider, and an outcome that never says "not sent" of a message that the provider may have
// accepted.
package providertest

import (
	"context"
	"errors"
	"net/mail"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"email-gateway/worker/internal/provider"
)

// Behaviour is how a Backend responds to requests.
type Behaviour int

const (
	// Accept accepts the message and answers with a non-empty id.
	Accept Behaviour = iota
	// Refuse rejects the message permanently.
	Refuse
	// Throttle rejects the message because of a rate limit.
	Throttle
	// DenyAccess rejects the credentials.
	DenyAccess
	// Garble accepts the message with a success response that has no valid receipt.
	Garble
	// Cut accepts the message and closes the connection without a response.
	Cut
	// Hang accepts the message and never responds.
	Hang
)

// Backend is the provider under the suite's control. Initially it accepts.
type Backend interface {
	// Behave sets the response to all further requests.
	Behave(Behaviour)
	// Received returns the decoded messages of all completely received requests, in order, whatever
	// the response was.
	Received() []provider.Message
	// Disappear closes the port: further connections are refused.
	Disappear()
}

// Start creates a Sender and the Backend it sends to, and registers the cleanup with t. The Sender
// must not limit calls beyond their context.
type Start func(t *testing.T) (provider.Sender, Backend)

// Run tests an adapter.
func Run(t *testing.T, start Start) {
	t.Run("message", func(t *testing.T) { t.Parallel(); runMessages(t, start) })
	t.Run("outcome", func(t *testing.T) { t.Parallel(); runOutcomes(t, start) })
	t.Run("context", func(t *testing.T) { t.Parallel(); runContexts(t, start) })
	t.Run("parallel", func(t *testing.T) { t.Parallel(); runParallel(t, start) })
}

// timeout is how long the suite waits for something that should happen at once.
const timeout = 3 * time.Minute

// full returns a message that uses all fields.
func full() provider.Message {
	return provider.Message{
		From:    `"Loja São João, Ltda." <pedidos@loja.example>`,
		To:      "Maria.Silva+nota@cliente.example",
		CC:      []string{"financeiro@cliente.example", "arquivo@cliente.example"},
		BCC:     []string{"auditoria@loja.example"},
		ReplyTo: "atendimento@loja.example",
		Subject: "Sua fatura nº 42 está disponível — até amanhã ✅",
		HTML:    "<p>Olá, <b>João</b>: você tem 1 ação pendente &amp; R$ 10,00 “à vista” 日本</p>\n<p>\"fim\"\\</p>",
		Text:    "Olá, João:\n\nvocê tem 1 ação pendente & R$ 10,00 “à vista” 日本\n",
		Headers: map[string]string{
			"X-Campaign":            "black friday; v=2",
			"List-Unsubscribe":      "<https://mail.example/u/abc>",
			"List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
		},
		OutboxID:       "0197b3a0-0000-7000-8000-000000000001",
		AttemptID:      "0197b3a0-0000-7000-8000-000000000002",
		CompanyID:      "0197b3a0-0000-7000-8000-000000000003",
		InstallationID: "8d7f2c1e-93a4-4c55-9a3e-5b1f0c2d7e61",
	}
}

// bare returns a message with the required fields only.
func bare() provider.Message {
	m := full()
	return provider.Message{
		From: "pedidos@loja.example", To: m.To, Subject: "Oi", HTML: "<p>Oi</p>",
		OutboxID: m.OutboxID, AttemptID: m.AttemptID, CompanyID: m.CompanyID, InstallationID: m.InstallationID,
	}
}

// diff compares the sent message with the received one. From is compared as an address, because a
// display name has more than one valid encoding.
func diff(sent, arrived provider.Message) string {
	from := cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "From" }, cmp.Comparer(sameAddress))
	return cmp.Diff(sent, arrived, from, cmpopts.EquateEmpty())
}

func sameAddress(a, b string) bool {
	left, err := mail.ParseAddress(a)
	if err != nil {
		return false
	}
	right, err := mail.ParseAddress(b)
	return err == nil && *left == *right
}

// fails sends m and checks that the call fails with this outcome.
func fails(ctx context.Context, t *testing.T, s provider.Sender, m provider.Message, want provider.Outcome) {
	t.Helper()
	receipt, err := s.Send(ctx, m)
	refused(t, receipt, err, want)
}

// refused checks the outcome and the required fields of a failure.
func refused(t *testing.T, receipt provider.Receipt, err error, want provider.Outcome) {
	t.Helper()
	if err == nil {
		t.Fatalf("Send = %+v, want outcome %s", receipt, want)
	}
	if receipt != (provider.Receipt{}) {
		t.Errorf("Send returned both %+v and an error", receipt)
	}
	f, ok := err.(*provider.Failure) //nolint:errorlint // a wrapped one would be the adapter's mistake
	if !ok {
		t.Fatalf("Send error is a %T, want a *provider.Failure itself: %v", err, err)
	}
	if f.Outcome != want {
		t.Errorf("outcome = %s (%v), want %s", f.Outcome, f, want)
	}
	if f.Code == "" || f.Category == "" || f.Reason == "" || f.Err == nil {
		t.Errorf("failure leaves a field empty: %+v", f)
	}
	if !errors.Is(err, f.Err) {
		t.Errorf("errors.Is does not find the cause of %v", f)
	}
}

// receives checks that exactly n requests were received.
func receives(t *testing.T, b Backend, n int) {
	t.Helper()
	if got := len(b.Received()); got != n {
		t.Errorf("the backend received %d requests, want %d", got, n)
	}
}

// arrives waits for the first request.
func arrives(t *testing.T, b Backend) {
	t.Helper()
	deadline := time.After(timeout)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for len(b.Received()) == 0 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Errorf("the backend received nothing within %v", timeout)
			return
		}
	}
}
