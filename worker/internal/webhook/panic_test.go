package webhook_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/logtest"
	webhookstore "email-gateway/shared/store/webhook"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/webhook"
)

// poisoned is a store of which one endpoint causes a panic.
type poisoned struct {
	*webhookstore.SenderStore
	endpoint uuid.UUID
}

func (p poisoned) Load(ctx context.Context, l webhookstore.Lease, probe time.Duration) (webhookstore.Round, error) {
	if l.EndpointID == p.endpoint {
		panic("impossible endpoint of ana@example.com")
	}
	return p.SenderStore.Load(ctx, l, probe)
}

// impossible is a transport in which each request causes a panic.
type impossible struct{}

func (impossible) RoundTrip(*http.Request) (*http.Response, error) { panic("impossible response") }

// A panic, in a round or in an attempt, is an error of its endpoint: the process and other endpoints go on, and the
// endpoint is served as soon as that is possible.
func TestService_Panic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company, log := w.Company(t), &logtest.Buffer{}
	bad, good := w.endpoint(t, company), w.endpoint(t, company)
	w.emit(t, company, 2, 3)
	logged := func(p *webhook.Params) { p.Log = slog.New(slog.NewTextHandler(log, nil)) }
	inRound := w.start(t, func(p *webhook.Params) {
		logged(p)
		p.Store = poisoned{w.Sending, bad.ID}
	})
	waittest.Until(t, "the events of the other endpoint", func() bool { return len(good.messages()) == 6 })
	waittest.Until(t, "a log line", func() bool { return log.Count("webhook endpoint not served") > 0 })
	if text := log.String(); !strings.Contains(text, "panic: impossible endpoint of a***@e***.com") || !strings.Contains(text, "panic_test.go") {
		t.Errorf("the log must contain the panic and its stack:\n%s", text)
	}
	if err := inRound.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	before := log.Count("webhook endpoint not served")
	inAttempt := w.start(t, func(p *webhook.Params) {
		logged(p)
		p.Sender.SetTransport(impossible{})
	})
	waittest.Until(t, "another log line", func() bool { return log.Count("webhook endpoint not served") > before })
	if err := inAttempt.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.start(t, nil)
	waittest.Until(t, "the events of before", func() bool { return len(bad.messages()) == 6 })
	bad.check(t, w, 6)
}
