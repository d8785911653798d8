package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestLargeBodies_TakeTurns: slow senders of large bodies hold up each other, not
// the memory and not the small ones.
func TestLargeBodies_TakeTurns(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	defer senders.Wait()
	defer leave()
	begun := make(chan struct{}, 64)
	for range 16 { // of 2 MiB: all there is
		senders.Go(func() {
			_, _ = g.try(t, call{Method: http.MethodPost, Path: "/v1/email/send", Reader: &stalled{ctx: ctx, begun: begun}, Context: ctx})
		})
	}
	for range 16 {
		<-begun
	}
	large := emailBody(with("text", strings.Repeat("a", 500<<10)))
	r := g.send(t, large)
	for tries := 0; r.Status == http.StatusAccepted && tries < 10; tries++ {
		r = g.send(t, large) // the last of the 16 had not reached the handler yet
	}
	if r.Status != http.StatusServiceUnavailable || r.problem(t).Code != "BUSY" {
		t.Errorf("a large body: %d %s", r.Status, r.Body)
	}
	g.accept(t, emailBody(nil))
	leave()
}

// Anybody may begin to send a notification of SNS. It takes nothing from the tenants.
func TestLargeBodies_OfStrangers(t *testing.T) {
	t.Parallel()
	g := startProvider(t, nil).gateway
	ctx, leave := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	defer senders.Wait()
	defer leave()
	begun := make(chan struct{}, 64)
	for range 32 { // twice what takes all there is for tenants
		senders.Go(func() {
			_, _ = g.try(t, call{
				Method: http.MethodPost, Path: "/v1/ses/events", Reader: &stalled{ctx: ctx, begun: begun}, Context: ctx,
				Header: map[string]string{"Content-Type": "text/plain"}, NoKey: true,
			})
		})
	}
	for range 32 {
		<-begun
	}
	for range 4 {
		g.accept(t, emailBody(with("text", strings.Repeat("a", 500<<10))))
	}
	leave()
}

// stalled is a body that begins and does not go on.
type stalled struct {
	ctx   context.Context
	begun chan<- struct{}
	sent  bool
}

func (s *stalled) Read(p []byte) (int, error) {
	if !s.sent {
		s.sent = true
		return copy(p, `{"to":`), nil
	}
	s.begun <- struct{}{}
	<-s.ctx.Done()
	return 0, io.ErrUnexpectedEOF
}

func TestBody_EndsEarly(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	before := g.rows(t)
	for range 3 {
		body := io.MultiReader(strings.NewReader(emailBody(nil)[:40]), errReader{})
		_, _ = g.try(t, call{Method: http.MethodPost, Path: "/v1/email/send", Reader: body})
	}
	g.accept(t, emailBody(nil))
	if n := g.rows(t) - before; n != 1 {
		t.Errorf("%d rows", n)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }
