package htmlcheck_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"email-gateway/shared/htmlcheck"
)

func TestCheckerVerdicts(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("<p>Oi</p>", 2000)
	checker := htmlcheck.New(2)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if err := checker.Check(t.Context(), large); err != nil {
				t.Errorf("Check = %v, want nil", err)
			}
			if err := checker.Check(t.Context(), large+"<p onclick>"); rule(err) != htmlcheck.RuleEventHandler {
				t.Errorf("Check = %v, want %s", err, htmlcheck.RuleEventHandler)
			}
			if err := checker.Check(t.Context(), "<script>"); rule(err) != htmlcheck.RuleScriptElement {
				t.Errorf("Check = %v, want %s", err, htmlcheck.RuleScriptElement)
			}
		})
	}
	wg.Wait()
}

func TestCheckerEndedContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := htmlcheck.New(1).Check(ctx, "<p>Oi</p>")
	if !errors.Is(err, context.Canceled) || rule(err) != "" {
		t.Errorf("Check = %v, want context.Canceled", err)
	}
}

// TestCheckerWaits takes the only slot: a large body waits until its context
// ends, a small one does not wait.
func TestCheckerWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		checker := htmlcheck.New(0)
		release := checker.Occupy()
		ctx, cancel := context.WithCancel(t.Context())
		verdict := make(chan error, 1)
		go func() { verdict <- checker.Check(ctx, strings.Repeat("<p>Oi</p>", 2000)) }()
		synctest.Wait()

		if err := checker.Check(ctx, "<p>Oi</p>"); err != nil {
			t.Errorf("small body: Check = %v, want nil", err)
		}
		select {
		case err := <-verdict:
			t.Fatalf("large body: Check = %v without a slot", err)
		default:
		}
		cancel()
		if err := <-verdict; !errors.Is(err, context.Canceled) {
			t.Errorf("large body: Check = %v, want context.Canceled", err)
		}

		release()
		if err := checker.Check(t.Context(), strings.Repeat("<p>Oi</p>", 2000)); err != nil {
			t.Errorf("large body with a free slot: Check = %v, want nil", err)
		}
	})
}
