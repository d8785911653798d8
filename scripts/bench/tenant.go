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

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/load"
)

// tenant is a client that sends emails: the address of an api and the keys of one or more tenants, which take turns. A batch
// is sent by the first one.
type tenant struct {
	addr          string
	keys          []string
	emailTemplate environment.EmailTemplate
	serial        *atomic.Int64 // of the last email; serials are unique
	client        *http.Client
}

// post sends one email and returns its id. It keeps its connections, and opens as many as it needs.
func (t *tenant) post(ctx context.Context, serial int64) (uuid.UUID, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.addr+"/v1/email/send",
		bytes.NewReader(t.emailTemplate.Append(nil, serial)))
	if err != nil {
		return uuid.Nil, fmt.Errorf("post email: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+t.keys[serial%int64(len(t.keys))])
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", fmt.Sprintf("fatura-%d", serial))
	response, err := t.client.Do(request)
	if err != nil {
		return uuid.Nil, fmt.Errorf("post email: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return uuid.Nil, fmt.Errorf("post email: %w", err)
	}
	var accepted struct{ OutboxID uuid.UUID }
	if err := json.Unmarshal(text, &accepted); err != nil || response.StatusCode != http.StatusAccepted {
		return uuid.Nil, fmt.Errorf("post email: the response is %s %s", response.Status, text)
	}
	return accepted.OutboxID, nil
}

// batchConnections is the number of connections that post a batch.
const batchConnections = 64

// postBatch posts n emails as fast as they are accepted, plus a few more that other connections
// start before the last response. It returns the number.
func (t *tenant) postBatch(ctx context.Context, n int) (posted int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var over, never atomic.Bool
	first := t.serial.Load()
	request := t.emailTemplate.Request(t.keys[0])
	h := load.Generator{
		Addr: t.addr, Connections: batchConnections, Status: http.StatusAccepted, Serial: t.serial,
		Request: func(dst []byte, serial int64) []byte {
			if serial >= first+int64(n) {
				over.Store(true)
			}
			return request(dst, serial)
		},
	}
	var waits []time.Duration // stays empty: single responses are not measured
	var posting sync.WaitGroup
	for range h.Connections {
		posting.Go(func() {
			if err := h.Connect(ctx, &never, &over, &waits); err != nil {
				cancel(err)
			}
		})
	}
	posting.Wait()
	return int(t.serial.Load() - first), context.Cause(ctx)
}
