package privacy_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"email-gateway/api/internal/privacy"
	"email-gateway/shared/email"
)

// An erasure that was interrupted or crashed at any step is continued by the next one, whose receipt
// has the rows of both.
func TestErase_Interrupted(t *testing.T) {
	t.Parallel()
	undisturbed := newWorld(t)
	undisturbed.end(t, undisturbed.busy, undisturbed.token, email.Sent, false)
	whole, err := undisturbed.erase(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, stop := range map[string]func(cancel func()){
		"interrupted": func(cancel func()) { cancel() },
		"crashed":     func(func()) { panic(errCrash) }, // the run executes nothing after a crash
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.end(t, w.busy, w.token, email.Sent, false)
			done := w.eraseInSteps(t, stop)
			if found := w.namesOfMaria(t); len(found) > 0 {
				t.Errorf("rows still name her:\n%s", strings.Join(found, "\n"))
			}
			if !maps.Equal(done.Receipt.Tables, whole.Receipt.Tables) || !slices.Equal(done.Receipt.Rows, whole.Receipt.Rows) {
				t.Errorf("the receipt has %v\nwant that of an uninterrupted run: %v", done.Receipt, whole.Receipt)
			}
		})
	}
}

var errCrash = errors.New("crash")

// eraseInSteps stops each run one step later than the run before, until one completes.
func (w *world) eraseInSteps(t *testing.T, stop func(cancel func())) privacy.Erased {
	t.Helper()
	for steps := range 30 {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		w.archive.Progress = func(string, int) {
			if n++; n > steps {
				stop(cancel)
			}
		}
		done, err := func() (done privacy.Erased, err error) {
			defer func() {
				if crash := recover(); crash != nil {
					err = crash.(error)
				}
			}()
			return w.erase(ctx, nil)
		}()
		cancel()
		if err == nil {
			return done
		}
		if !errors.Is(err, context.Canceled) && !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
	}
	t.Fatal("no run completed")
	return privacy.Erased{}
}

// A second erasure of the person that completes during the first one continues it and finishes both. The receipt of
// the first one still has its own rows.
func TestErase_FinishedByAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.end(t, w.busy, w.token, email.Sent, false)
	var second privacy.Erased
	w.archive.Progress = func(_ string, found int) {
		if found == 0 {
			return
		}
		w.archive.Progress = nil
		var err error
		if second, err = w.erase(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}
	first, err := w.erase(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Receipt.Tables) == 0 || len(second.Receipt.Tables) <= len(first.Receipt.Tables) {
		t.Errorf("the first receipt has %v, the second %v", first.Receipt, second.Receipt)
	}
}
