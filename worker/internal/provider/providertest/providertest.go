// Package providertest is the suite every provider.Sender must pass. An adapter's
// own test calls Run with its Sender in front of a Backend that speaks the
// provider's protocol on loopback:
//
//	providertest.Run(t, func(t *testing.T) (provider.Sender, providertest.Backend) { … })
//
// What the suite holds an adapter to is what the pipeline builds on: one request per
// Send, the message unchanged on the other side, and a verdict that never says "not
// sent" of a message the provider may have taken.
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

// Behaviour is what a Backend does with the requests that reach it.
type Behaviour int

const (
	// Accept takes the message and answers with an id that is not empty.
	Accept Behaviour = iota
	// Refuse answers that this message will never be taken.
	Refuse
	// Throttle answers that it is too much for now.
	Throttle
	// DenyAccess answers that the credentials are not good.
	DenyAccess
	// Garble takes the message, and its answer says so but cannot be read as a receipt.
	Garble
	// Cut takes the message and closes the connection instead of answering.
	Cut
	// Hang takes the message and never answers.
	Hang
)

// Backend is the provider under the suite's control. A fresh one accepts.
type Backend interface {
	// Behave decides about the requests from now on.
	Behave(Behaviour)
	// Received returns the messages of all requests that arrived whole, in order and
	// whatever was answered. They are as the provider would deliver them: decoded.
	Received() []provider.Message
	// Disappear closes the port: connections are refused from now on.
	Disappear()
}

// Start makes a Sender and the Backend it sends to, and leaves the cleanup to t. Calls
// through the Sender must be free to last as long as their context.
type Start func(t *testing.T) (provider.Sender, Backend)

// Run holds an adapter to the contract.
func Run(t *testing.T, start Start) {
	t.Run("message", func(t *testing.T) { t.Parallel(); runMessages(t, start) })
	t.Run("verdict", func(t *testing.T) { t.Parallel(); runVerdicts(t, start) })
	t.Run("context", func(t *testing.T) { t.Parallel(); runContexts(t, start) })
	t.Run("parallel", func(t *testing.T) { t.Parallel(); runParallel(t, start) })
}

// patience is how long the suite waits for something that should happen at once.
const patience = 3 * time.Minute

// full is a message that uses everything a message may have.
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
		OutboxID:  "0197b3a0-0000-7000-8000-000000000001",
		AttemptID: "0197b3a0-0000-7000-8000-000000000002",
		CompanyID: "0197b3a0-0000-7000-8000-000000000003",
	}
}

// bare is a message that uses nothing it may leave out.
func bare() provider.Message {
	m := full()
	return provider.Message{
		From: "pedidos@loja.example", To: m.To, Subject: "Oi", HTML: "<p>Oi</p>",
		OutboxID: m.OutboxID, AttemptID: m.AttemptID, CompanyID: m.CompanyID,
	}
}

// diff compares what was sent with what arrived. From is compared as an address,
// because a display name has more than one correct spelling.
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

// fails sends m and wants it refused.
func fails(ctx context.Context, t *testing.T, s provider.Sender, m provider.Message, want provider.Verdict) {
	t.Helper()
	receipt, err := s.Send(ctx, m)
	refused(t, receipt, err, want)
}

// refused checks the verdict, and what every failure owes its reader.
func refused(t *testing.T, receipt provider.Receipt, err error, want provider.Verdict) {
	t.Helper()
	if err == nil {
		t.Fatalf("Send = %+v, want verdict %s", receipt, want)
	}
	if receipt != (provider.Receipt{}) {
		t.Errorf("Send returned both %+v and an error", receipt)
	}
	f, ok := err.(*provider.Failure) //nolint:errorlint // a wrapped one would be the adapter's mistake
	if !ok {
		t.Fatalf("Send error is a %T, want a *provider.Failure itself: %v", err, err)
	}
	if f.Verdict != want {
		t.Errorf("verdict = %s (%v), want %s", f.Verdict, f, want)
	}
	if f.Code == "" || f.Category == "" || f.Reason == "" || f.Err == nil {
		t.Errorf("failure leaves a field empty: %+v", f)
	}
	if !errors.Is(err, f.Err) {
		t.Errorf("errors.Is does not find the cause of %v", f)
	}
}

// receives wants exactly n requests to have arrived.
func receives(t *testing.T, b Backend, n int) {
	t.Helper()
	if got := len(b.Received()); got != n {
		t.Errorf("the backend received %d requests, want %d", got, n)
	}
}

// arrives waits for the first request, and complains when none comes.
func arrives(t *testing.T, b Backend) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for len(b.Received()) == 0 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Errorf("the backend received nothing within %v", patience)
			return
		}
	}
}
