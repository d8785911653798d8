package webhook_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/keyring"
	"email-gateway/shared/logtest"
	webhookstore "email-gateway/shared/store/webhook"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/webhook"
)

// counting is a store that keeps when each endpoint was taken.
type counting struct {
	*webhookstore.SenderStore
	mu    sync.Mutex
	taken map[uuid.UUID][]time.Time
}

func (c *counting) Take(ctx context.Context, l webhookstore.Lease, d time.Duration) error {
	c.mu.Lock()
	c.taken[l.EndpointID] = append(c.taken[l.EndpointID], time.Now())
	c.mu.Unlock()
	return c.SenderStore.Take(ctx, l, d)
}

func (c *counting) of(r *receiver) []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.taken[r.ID])
}

// lockSecrets encrypts the secrets of endpoints with a key that the worker does not have, and returns what undoes it.
func (w *world) lockSecrets(t *testing.T, all []*receiver) (unlock func()) {
	t.Helper()
	other, err := keyring.Parse("newer:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{2}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[uuid.UUID][]byte{}
	for _, r := range all {
		secrets[r.ID] = w.find(t, r).Secret
		text, err := w.Ring.Open(r.company, secrets[r.ID])
		if err != nil {
			t.Fatal(err)
		}
		locked, err := other.Seal(r.company, text)
		if err != nil {
			t.Fatal(err)
		}
		w.exec(t, `UPDATE webhook_endpoints SET secret_enc = $2 WHERE id = $1`, r.ID, locked)
	}
	return func() {
		for id, secret := range secrets {
			w.exec(t, `UPDATE webhook_endpoints SET secret_enc = $2 WHERE id = $1`, id, secret)
		}
	}
}

// Endpoints that a worker cannot serve, because it lacks the key of their secrets, are tried at intervals that double, are not
// logged one by one, and occupy no place meanwhile. They are served when the worker can, without a new event.
func TestService_MissingKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company, log := w.Company(t), &logtest.Buffer{}
	var failing []*receiver
	for range 20 {
		failing = append(failing, w.endpoint(t, company))
	}
	unlock := w.lockSecrets(t, failing)
	w.emit(t, company, 2, 3)
	store := &counting{SenderStore: w.Sending, taken: map[uuid.UUID][]time.Time{}}
	s := w.service(func(p *webhook.Params) { p.Store, p.Log = store, slog.New(slog.NewTextHandler(log, nil)) })
	const first = 400 * time.Millisecond
	s.SetFailureWait(first)
	s.SetRelist(time.Hour)
	start := time.Now()
	if err := s.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(t.Context()) })
	for _, r := range failing {
		waittest.Until(t, "three tries", func() bool { return len(store.of(r)) >= 3 })
		taken := store.of(r)
		if one, two := taken[1].Sub(taken[0]), taken[2].Sub(taken[1]); one < first || two < 2*first {
			t.Errorf("tried again after %v and %v", one, two)
		}
	}
	if n := log.Count("webhook endpoint not served"); n < 1 || n > 1+int(time.Since(start)/(30*time.Second)) {
		t.Errorf("%d lines of %d endpoints", n, len(failing))
	}
	unlock()
	for _, r := range failing {
		waittest.Until(t, "the events of before", func() bool { return len(r.messages()) == 6 })
		r.check(t, w, 6)
	}
}

// More failing endpoints than a worker serves at a time do not keep another one from being served.
func TestService_MissingKeyOfMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company, quiet := w.Company(t), w.Company(t)
	var failing []*receiver
	for range 5 {
		failing = append(failing, w.endpoint(t, company))
	}
	w.lockSecrets(t, failing)
	w.emit(t, company, 1, 1)
	store := &counting{SenderStore: w.Sending, taken: map[uuid.UUID][]time.Time{}}
	s := w.service(func(p *webhook.Params) { p.Store = store })
	s.SetTurns(1, time.Hour)
	s.SetFailureWait(time.Hour) // an endpoint that occupies the only place does so until the test has failed
	if err := s.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(t.Context()) })
	for _, r := range failing {
		waittest.Until(t, "a try", func() bool { return len(store.of(r)) > 0 })
	}
	other := w.endpoint(t, quiet)
	w.emit(t, quiet, 1, 1)
	waittest.Until(t, "the other company's event", func() bool { return len(other.messages()) == 1 })
	for _, r := range failing {
		if n := len(store.of(r)); n != 1 {
			t.Errorf("tried %d times", n)
		}
	}
}
