package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// send submits one email until it is accepted, once or twice concurrently.
func (l *Load) send(ctx context.Context, next email) {
	if !l.prepare(ctx, next) {
		return
	}
	times := 1
	if next.concurrent {
		times = 2
	}
	ids := make([]uuid.UUID, times)
	var handing sync.WaitGroup
	for i := range times {
		handing.Go(func() { ids[i] = l.submit(ctx, next) })
	}
	handing.Wait()
	if next.concurrent && ids[0] != ids[1] && ids[0] != uuid.Nil && ids[1] != uuid.Nil {
		l.Ledger.addRefusal(fmt.Sprintf("email %d: the responses to one Idempotency-Key have the ids %s and %s", next.serial, ids[0], ids[1]))
	}
	if next.cancel && ids[0] != uuid.Nil {
		l.withdraw(ctx, next, ids[0])
	}
}

// prepare makes the requests that precede the email's own, and reports whether it may be submitted.
func (l *Load) prepare(ctx context.Context, next email) bool {
	return (!next.suppress || l.suppress(ctx, next)) && l.storeFiles(ctx, next)
}

// submit submits the email until it is accepted.
func (l *Load) submit(ctx context.Context, next email) uuid.UUID {
	l.addContent(next)
	body, _ := json.Marshal(next.request) // maps of strings and numbers always can
	r := request{
		method: http.MethodPost, path: "/v1/email/send", key: next.key, contentType: "application/json",
		idempotency: external(next.serial), body: body,
	}
	if len(next.content.Attachments) > 0 {
		r.timeout = uploadTimeout
	}
	got, ok := l.retryUntilAccepted(ctx, r, external(next.serial))
	if !ok {
		return uuid.Nil
	}
	accepted, err := read[struct{ OutboxID uuid.UUID }](got)
	if err != nil {
		l.Ledger.addRefusal(fmt.Sprintf("email %d: %v", next.serial, err))
		return uuid.Nil
	}
	l.Ledger.addAccepted(next.accepted(accepted.OutboxID))
	return accepted.OutboxID
}

// retryUntilAccepted repeats a request until there is a 202.
func (l *Load) retryUntilAccepted(ctx context.Context, r request, what string) (got response, ok bool) {
	return l.retryUntil(ctx, r, what, http.StatusAccepted)
}

// retryUntil repeats a request until there is a response with one of the statuses. It records permanent
// refusals, and requests without a response when ctx ends.
func (l *Load) retryUntil(ctx context.Context, r request, what string, statuses ...int) (got response, ok bool) {
	unknown := false
	for try := 1; ; try++ {
		var err error
		got, err = l.client.do(ctx, r)
		l.Ledger.countResponse(got.status)
		switch {
		case err != nil: // no response: the request may have been executed
			unknown = true
		case slices.Contains(statuses, got.status):
			if unknown {
				l.Ledger.countResolved(got.replayed)
			}
			return got, true
		case !got.retryable():
			l.Ledger.addRefusal(fmt.Sprintf("%s: %s", what, unexpectedResponse(got.status, got.body)))
			return got, false
		}
		if backoff(ctx, try) != nil {
			l.Ledger.addUnanswered(what)
			return got, false
		}
	}
}

// withdraw cancels the email, which may be too late.
func (l *Load) withdraw(ctx context.Context, next email, id uuid.UUID) {
	r := request{method: http.MethodPost, path: "/v1/email/" + id.String() + "/cancel", key: next.key}
	for try := 1; ; try++ {
		got, err := l.client.do(ctx, r)
		switch {
		case err == nil && got.status == http.StatusOK:
			l.Ledger.addCancelled(id)
			return
		case err == nil && bytes.Contains(got.body, []byte(`"CANCEL_TOO_LATE"`)) && time.Until(next.content.SendAt) < time.Minute:
			return
		case err == nil && !got.retryable():
			l.Ledger.addRefusal(fmt.Sprintf("cancel %s: %s", id, unexpectedResponse(got.status, got.body)))
			return
		}
		if backoff(ctx, try) != nil {
			return // no response said that it is withdrawn
		}
	}
}
