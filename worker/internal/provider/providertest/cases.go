package providertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"email-gateway/worker/internal/provider"
)

func runMessages(t *testing.T, start Start) {
	large := bare()
	large.HTML = "<p>" + strings.Repeat("ação ", 80_000) + "</p>"
	encoded := bare()
	encoded.From = fmt.Sprintf("%q <pedidos@loja.example>", strings.Repeat("São João ", 20)+"Ltda.")
	plain := bare()
	plain.HTML, plain.Text = "", "Só texto"

	for name, m := range map[string]provider.Message{
		"full": full(), "bare": bare(), "text only": plain, "large": large, "long display name": encoded,
	} {
		t.Run(name+" arrives unchanged", func(t *testing.T) {
			t.Parallel()
			s, b := start(t)
			given := clone(m)
			receipt, err := s.Send(t.Context(), given)
			if err != nil {
				t.Fatalf("Send: %v", err)
			}
			if receipt.MessageID == "" {
				t.Error("the receipt has no message id")
			}
			receives(t, b, 1)
			if d := diff(m, b.Received()[0]); d != "" {
				t.Errorf("message changed in transit (-sent +arrived):\n%s", d)
			}
			if d := diff(m, given); d != "" {
				t.Errorf("Send changed its argument (-before +after):\n%s", d)
			}
		})
	}

	t.Run("the same message twice is two requests", func(t *testing.T) {
		t.Parallel()
		s, b := start(t)
		for range 2 {
			if _, err := s.Send(t.Context(), full()); err != nil {
				t.Fatalf("Send: %v", err)
			}
		}
		receives(t, b, 2)
	})

	t.Run("an unusable sender address is not sent", func(t *testing.T) {
		t.Parallel()
		s, b := start(t)
		m := full()
		m.From = "nobody"
		fails(t.Context(), t, s, m, provider.Failed)
		receives(t, b, 0)
	})
}

func runOutcomes(t *testing.T, start Start) {
	for name, c := range map[string]struct {
		does Behaviour
		want provider.Outcome
	}{
		"refused":                    {Refuse, provider.Failed},
		"throttled":                  {Throttle, provider.Throttled},
		"access denied":              {DenyAccess, provider.Park},
		"accepted, response invalid": {Garble, provider.Unreadable},
		"accepted, response cut off": {Cut, provider.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, b := start(t)
			b.Behave(c.does)
			fails(t.Context(), t, s, full(), c.want)
			receives(t, b, 1)

			// A failure has no effect on later calls.
			b.Behave(Accept)
			if _, err := s.Send(t.Context(), full()); err != nil {
				t.Errorf("Send after the failure: %v", err)
			}
			receives(t, b, 2)

			// Nor does it matter if the connection was used before.
			b.Behave(c.does)
			fails(t.Context(), t, s, full(), c.want)
			receives(t, b, 3)
		})
	}

	t.Run("connection refused is certainly not sent", func(t *testing.T) {
		t.Parallel()
		s, b := start(t)
		b.Disappear()
		fails(t.Context(), t, s, full(), provider.Retry)
		receives(t, b, 0)
	})
}

func runContexts(t *testing.T, start Start) {
	t.Run("a deadline without an answer leaves it unknown", func(t *testing.T) {
		t.Parallel()
		// On a loaded machine a short deadline may pass before the request is sent, so it grows
		// until one gets through.
		for limit := 100 * time.Millisecond; ; limit *= 2 {
			s, b := start(t)
			b.Behave(Hang)
			started := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			receipt, err := s.Send(ctx, full())
			cancel()
			if len(b.Received()) == 0 && limit < timeout {
				continue
			}
			refused(t, receipt, err, provider.Unknown)
			if took := time.Since(started); took > limit+timeout {
				t.Errorf("Send took %v with a deadline of %v", took, limit)
			}
			receives(t, b, 1)
			return
		}
	})

	t.Run("cancelled while waiting for the answer is unknown", func(t *testing.T) {
		t.Parallel()
		s, b := start(t)
		b.Behave(Hang)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			defer cancel()
			arrives(t, b)
		}()
		fails(ctx, t, s, full(), provider.Unknown)
		receives(t, b, 1)
	})

	t.Run("cancelled before the call is unspent", func(t *testing.T) {
		t.Parallel()
		s, b := start(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		fails(ctx, t, s, full(), provider.Unspent)
		receives(t, b, 0)
	})

	t.Run("deadline passed before the call is a retry", func(t *testing.T) {
		t.Parallel()
		s, b := start(t)
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		fails(ctx, t, s, full(), provider.Retry)
		receives(t, b, 0)
	})
}

func runParallel(t *testing.T, start Start) {
	const senders, each = 8, 25
	s, b := start(t)
	var wait sync.WaitGroup
	for i := range senders {
		wait.Go(func() {
			for j := range each {
				m := full()
				m.AttemptID = fmt.Sprintf("attempt-%d-%d", i, j)
				m.To = fmt.Sprintf("reader-%d-%d@cliente.example", i, j)
				if _, err := s.Send(t.Context(), m); err != nil {
					t.Errorf("Send %s: %v", m.AttemptID, err)
				}
			}
		})
	}
	wait.Wait()

	receives(t, b, senders*each)
	seen := make(map[string]bool)
	for _, m := range b.Received() {
		if strings.TrimPrefix(m.AttemptID, "attempt") != strings.TrimSuffix(strings.TrimPrefix(m.To, "reader"), "@cliente.example") {
			t.Errorf("attempt %s went to %s", m.AttemptID, m.To)
		}
		seen[m.AttemptID] = true
	}
	if len(seen) != senders*each {
		t.Errorf("%d different attempts arrived, want %d", len(seen), senders*each)
	}
}

// clone copies m's slices and map, so that Send cannot change the original.
func clone(m provider.Message) provider.Message {
	m.CC, m.BCC, m.Headers = slices.Clone(m.CC), slices.Clone(m.BCC), maps.Clone(m.Headers)
	return m
}
