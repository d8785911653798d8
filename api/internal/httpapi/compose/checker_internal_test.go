package compose

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
)

// A company whose large bodies are being checked leaves a slot for other companies.
func TestTurns_OfHTMLChecks(t *testing.T) {
	t.Parallel()
	const processors = 2
	c := NewChecker(processors)
	large := "<p>" + strings.Repeat("a", 64<<10)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	company, begun := uuid.New(), make(chan struct{}, processors)
	for range 8 {
		go func() {
			_ = c.checkHTML(ctx, company, large, func(ctx context.Context) error {
				begun <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
		}()
	}
	for range processors {
		<-begun
	}
	done := make(chan error, 1)
	go func() {
		done <- c.checkHTML(ctx, uuid.New(), large, func(ctx context.Context) error {
			_, err := c.html.CheckAll(ctx, large, 1)
			return err
		})
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("a body of another company waits for a slot")
	}
}

// A client that disconnects while its body waits for the check does not count as overload.
func TestTurns_ClientGone(t *testing.T) {
	t.Parallel()
	c := NewChecker(1)
	company := uuid.New()
	leave, err := c.turns.Enter(t.Context(), company)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	ctx, closeAfterResponse := context.WithCancel(t.Context())
	closeAfterResponse()
	err = c.checkHTML(ctx, company, "<p>"+strings.Repeat("a", 64<<10), func(context.Context) error { return nil })
	if p := problem.Of(err); p.Status != problem.StatusClientGone {
		t.Errorf("%v: %+v", err, p)
	}
}
