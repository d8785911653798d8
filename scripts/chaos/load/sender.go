package load

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/google/uuid"
)

// send hands over one letter until it is accepted, once or as twins.
func (l *Load) send(ctx context.Context, next letter) {
	if next.suppress && !l.suppress(ctx, next) {
		return
	}
	times := 1
	if next.twin {
		times = 2
	}
	ids := make([]uuid.UUID, times)
	var handing sync.WaitGroup
	for i := range times {
		handing.Go(func() { ids[i] = l.handOver(ctx, next) })
	}
	handing.Wait()
	if next.twin && ids[0] != ids[1] && ids[0] != uuid.Nil && ids[1] != uuid.Nil {
		l.Book.refuse(fmt.Sprintf("letter %d: one Idempotency-Key was answered with %s and %s", next.serial, ids[0], ids[1]))
	}
	if next.cancel && ids[0] != uuid.Nil {
		l.withdraw(ctx, next, ids[0])
	}
}

// handOver repeats the request until it is accepted.
func (l *Load) handOver(ctx context.Context, next letter) uuid.UUID {
	r := request{
		method: http.MethodPost, path: "/v1/email/send", key: next.key, contentType: "application/json",
		idempotency: external(next.serial), body: next.body,
	}
	got, ok := l.insist(ctx, r, external(next.serial))
	if !ok {
		return uuid.Nil
	}
	accepted, err := read[struct{ OutboxID uuid.UUID }](got)
	if err != nil {
		l.Book.refuse(fmt.Sprintf("letter %d: %v", next.serial, err))
		return uuid.Nil
	}
	l.Book.accept(Accepted{Serial: next.serial, ID: accepted.OutboxID, AtMostOnce: next.atMostOnce, Suppressed: next.suppress})
	return accepted.OutboxID
}

// insist repeats a request until there is a 202. What is refused for good, or is still
// unanswered when ctx ends, goes into the book.
func (l *Load) insist(ctx context.Context, r request, what string) (got answer, ok bool) {
	unknown := false
	for try := 1; ; try++ {
		var err error
		got, err = l.client.do(ctx, r)
		l.Book.answer(got.status)
		switch {
		case err != nil: // the connection was cut or the answer never came: it may have been taken
			unknown = true
		case got.status == http.StatusAccepted:
			if unknown {
				l.Book.resolve(got.replayed)
			}
			return got, true
		case !repeatable(got.status):
			l.Book.refuse(fmt.Sprintf("%s: %s", what, unexpected(got.status, got.body)))
			return got, false
		}
		if again(ctx, try) != nil {
			l.Book.leave(what)
			return got, false
		}
	}
}

// withdraw cancels the email; it may be too late for that.
func (l *Load) withdraw(ctx context.Context, next letter, id uuid.UUID) {
	r := request{method: http.MethodPost, path: "/v1/email/" + id.String() + "/cancel", key: next.key}
	for try := 1; ; try++ {
		got, err := l.client.do(ctx, r)
		switch {
		case err == nil && got.status == http.StatusOK:
			l.Book.cancel(id)
			return
		case err == nil && got.status == http.StatusConflict: // too late
			return
		case err == nil && !repeatable(got.status):
			l.Book.refuse(fmt.Sprintf("cancel %s: %s", id, unexpected(got.status, got.body)))
			return
		}
		if again(ctx, try) != nil {
			return // nobody was told that it is withdrawn
		}
	}
}
