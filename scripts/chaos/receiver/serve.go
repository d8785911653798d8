package receiver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// maxBody is the specification's limit of a body.
const maxBody = 20_000

// delivery is the content of a request that must not change between attempts.
type delivery struct {
	Event
	at time.Time
}

// ServeHTTP verifies and records a request, and responds as the mode says.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d, err := e.read(r)
	e.mu.Lock()
	e.requests++
	if err != nil && r.Context().Err() != nil { // the sender was killed, or closed the connection
		e.mu.Unlock()
		return
	}
	if err == nil {
		err = e.compare(d)
	}
	if err != nil {
		e.faults = append(e.faults, err.Error())
		e.mu.Unlock()
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	mode, changed := e.mode, e.changed
	e.mu.Unlock()

	if mode == Hang {
		select {
		case <-changed: // and then accepts
		case <-r.Context().Done():
			return
		}
		mode = Accept
	}
	switch mode {
	case Fail:
		w.WriteHeader(http.StatusInternalServerError)
	case Cut:
		panic(http.ErrAbortHandler)
	case Lose:
		e.accept(d)
		panic(http.ErrAbortHandler)
	default:
		e.accept(d)
		w.WriteHeader(http.StatusNoContent)
	}
}

// read verifies a request and returns its event.
func (e *Endpoint) read(r *http.Request) (delivery, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return delivery{}, fmt.Errorf("read the body: %w", err)
	}
	e.mu.Lock()
	verify := e.verify
	e.mu.Unlock()
	if verify == nil {
		return delivery{}, fmt.Errorf("a request to %s before its creation was confirmed", e.Name)
	}
	if err := verify.Verify(body, r.Header); err != nil {
		return delivery{}, fmt.Errorf("verify: %w", err)
	}
	var event struct {
		Type      string
		Timestamp time.Time
		Data      struct {
			OutboxID string
			Seq      int
		}
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return delivery{}, fmt.Errorf("decode the body: %w", err)
	}
	return delivery{
		Event: Event{ID: r.Header.Get("webhook-id"), Email: event.Data.OutboxID, Seq: event.Data.Seq, Type: event.Type}, at: event.Timestamp,
	}, nil
}

// compare compares a request with an earlier one that has the same id; e.mu is held.
func (e *Endpoint) compare(d delivery) error {
	before, repeated := e.seen[d.ID]
	if !repeated {
		e.seen[d.ID] = d
		return nil
	}
	e.repeats++
	if before.Event != d.Event || !before.at.Equal(d.at) {
		return fmt.Errorf("event %s came as %+v of %s, and before as %+v of %s", d.ID, d.Event, d.at, before.Event, before.at)
	}
	return nil
}

// accept records the event before the response is written: the gateway sends the next event of the
// email after that.
func (e *Endpoint) accept(d delivery) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.accepted[d.ID] {
		e.accepted[d.ID] = true
		e.order = append(e.order, d.Event)
	}
}
