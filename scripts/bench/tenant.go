package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// tenant is a program that sends emails: an api and the key to it.
type tenant struct {
	addr, key string
	letter    letter
	serial    *atomic.Int64 // of the last email; numbers are never used twice
	client    *http.Client
}

// post sends one email and returns its id. It keeps its connections, and makes as many as
// it needs.
func (t *tenant) post(ctx context.Context, serial int64) (uuid.UUID, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.addr+"/v1/email/send",
		bytes.NewReader(t.letter.append(nil, serial)))
	if err != nil {
		return uuid.Nil, fmt.Errorf("post email: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+t.key)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", fmt.Sprintf("fatura-%d", serial))
	answer, err := t.client.Do(request)
	if err != nil {
		return uuid.Nil, fmt.Errorf("post email: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return uuid.Nil, fmt.Errorf("post email: %w", err)
	}
	var accepted struct{ OutboxID uuid.UUID }
	if err := json.Unmarshal(text, &accepted); err != nil || answer.StatusCode != http.StatusAccepted {
		return uuid.Nil, fmt.Errorf("post email: the answer is %s %s", answer.Status, text)
	}
	return accepted.OutboxID, nil
}

// batchConnections is how many connections a batch is posted over.
const batchConnections = 64

// postBatch posts n emails as fast as they are taken, and a few more that other connections
// begin with before the last one is answered. It returns how many.
func (t *tenant) postBatch(ctx context.Context, n int) (posted int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var over, never atomic.Bool
	first := t.serial.Load()
	request := t.letter.request(t.key)
	h := hammer{
		addr: t.addr, connections: batchConnections, status: http.StatusAccepted, serial: t.serial,
		request: func(dst []byte, serial int64) []byte {
			if serial >= first+int64(n) {
				over.Store(true)
			}
			return request(dst, serial)
		},
	}
	var waits []time.Duration // stays empty: nobody measures single answers
	var posting sync.WaitGroup
	for range h.connections {
		posting.Go(func() {
			if err := h.pound(ctx, &never, &over, &waits); err != nil {
				cancel(err)
			}
		})
	}
	posting.Wait()
	return int(t.serial.Load() - first), context.Cause(ctx)
}
