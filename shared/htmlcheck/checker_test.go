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
			if err := check(t.Context(), checker, large); err != nil {
				t.Errorf("Check = %v, want nil", err)
			}
			if err := check(t.Context(), checker, large+"<p onclick>"); rule(err) != htmlcheck.RuleEventHandler {
				t.Errorf("Check = %v, want %s", err, htmlcheck.RuleEventHandler)
			}
			if err := check(t.Context(), checker, "<script>"); rule(err) != htmlcheck.RuleScriptElement {
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
	err := check(ctx, htmlcheck.New(1), "<p>Oi</p>")
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
		result := make(chan error, 1)
		go func() { result <- check(ctx, checker, strings.Repeat("<p>Oi</p>", 2000)) }()
		synctest.Wait()

		if err := check(ctx, checker, "<p>Oi</p>"); err != nil {
			t.Errorf("small body: Check = %v, want nil", err)
		}
		select {
		case err := <-result:
			t.Fatalf("large body: Check = %v while no slot is free", err)
		default:
		}
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("large body: Check = %v, want context.Canceled", err)
		}

		release()
		if err := check(t.Context(), checker, strings.Repeat("<p>Oi</p>", 2000)); err != nil {
			t.Errorf("large body with a free slot: Check = %v, want nil", err)
		}
	})
}

// check is the first violation, or why there was no check.
func check(ctx context.Context, checker *htmlcheck.Checker, html string) error {
	found, err := checker.CheckAll(ctx, html, 20)
	if len(found) > 0 {
		return found[0]
	}
	return err
}
