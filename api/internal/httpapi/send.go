package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

// sendRoute identifies the operation in idempotency_keys. It must never change: keys of
// earlier releases are stored with it.
const sendRoute = "POST /v1/email/send"

const (
	// sameKeyWait limits how long a request waits for a concurrent request with the same Idempotency-Key.
	sameKeyWait = 5 * time.Second
	// acceptWait limits how long any other request waits: longer than a statement may take, since
	// a commit that waits for a synchronous standby is cancelled two seconds after that.
	acceptWait = 15 * time.Second
	// unknownWait limits the lookup after a commit that was not confirmed.
	unknownWait = 2 * time.Second
)

// emailPath is the path of emails.
const emailPath = "/v1/email/"

// accepted is the 202 response: the row is durably stored.
type accepted struct {
	OutboxID  string       `json:"outboxId"`
	JobID     string       `json:"jobId"`
	RequestID string       `json:"requestId"`
	Status    email.Status `json:"status"`
	CreatedAt time.Time    `json:"createdAt"`
}

// sendEmail handles POST /v1/email/send. It reads the body, composes the email and the response,
// and commits both with the Idempotency-Key in one transaction (accept); then it answers 202. A
// repeated request gets the first response.
func (a *API) sendEmail(c *gin.Context) error {
	document, contents, err := a.readSend(c)
	if err != nil {
		return err
	}
	defer contents.Close()
	guard, err := guardOf(c.Request.Header, sendRoute, document, a.composer.hashKey)
	if err != nil {
		return err
	}
	v := visitOf(c)
	mail, pending, err := a.composer.compose(c.Request.Context(), v.caller, v.requestID, document, contents)
	if err != nil {
		return a.replayInstead(c, guard, err)
	}
	id := mail.ID.String()
	answer, err := json.Marshal(accepted{
		OutboxID: id, JobID: id, RequestID: v.requestID, Status: email.Pending, CreatedAt: mail.CreatedAt,
	})
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	mail.Idempotency = guard.record(answer)
	v.outboxID, v.status, v.location = id, email.Pending, emailPath+id

	ctx, span := a.tracer.Start(c.Request.Context(), "accept", telemetry.Producer)
	defer span.End()
	mail.Job.Traceparent = telemetry.Traceparent(ctx)
	err = a.acceptFiles(ctx, &mail, pending, func() error {
		return a.accept(ctx, mail.ID, guard, acceptUnknown("email", id), func(ctx context.Context) error {
			return a.accepter.Accept(ctx, mail)
		})
	})
	var used *store.KeyUsedError
	var taken *store.AggregateTakenError
	switch {
	case errors.As(err, &used):
		return a.replay(c, guard, used.Answer)
	case errors.As(err, &taken):
		return a.answerEarlier(c, taken.ID)
	case err != nil:
		return a.replayInstead(c, guard, err)
	}
	if mail.SendAt.IsZero() {
		a.wake(store.Lanes{Company: mail.CompanyID, Queue: email.QueueFor(mail.Priority)})
	}
	a.answerAccepted(c, http.StatusAccepted, answer)
	return nil
}

// answerEarlier responds with the email of the same aggregate and event type that was accepted before.
func (a *API) answerEarlier(c *gin.Context, id uuid.UUID) error {
	if err := a.store.Confirm(c.Request.Context()); err != nil {
		return err
	}
	earlier, err := a.readEmail(c, id)
	if err != nil {
		return err
	}
	answer, err := json.Marshal(accepted{
		OutboxID: id.String(), JobID: id.String(), RequestID: earlier.RequestID, Status: earlier.Status, CreatedAt: earlier.CreatedAt.UTC(),
	})
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	visitOf(c).note(answer)
	c.Header("Idempotent-Replayed", "true")
	a.answerAccepted(c, http.StatusAccepted, answer)
	return nil
}

func (a *API) answerAccepted(c *gin.Context, status int, answer []byte) {
	if location := visitOf(c).location; location != "" {
		c.Header("Location", location)
	}
	c.Header("Content-Length", strconv.Itoa(len(answer))) // net/http sets it for short responses only
	c.Data(status, "application/json", answer)
}

// accept commits a request's rows with insert; id is the id of one of them. A nil error means
// that they are stored; unknown is returned if that cannot be determined. It continues if the
// client disconnects.
func (a *API) accept(ctx context.Context, id uuid.UUID, guard *onceGuard, unknown problem, insert func(context.Context) error) error {
	ctx = context.WithoutCancel(ctx)
	wait := acceptWait
	if guard != nil {
		wait = sameKeyWait // for a concurrent insert with the same key
	}
	inTime, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	crashpoint.At(crashpoint.AcceptBegun)
	err := insert(inTime)
	crashpoint.At(crashpoint.AcceptCommitted)
	late := err != nil && inTime.Err() != nil
	switch {
	case errors.Is(err, store.ErrUnknownOutcome):
		found, answers := a.lookUp(ctx, a.store.Exists, id, late)
		switch {
		case found:
			return nil
		case late && answers && guard != nil: // Postgres responds, so a concurrent request with the same key blocks the insert
			return sameKeyInProgress
		}
		return unknown
	case errors.Is(err, store.ErrInProgress), errors.Is(err, store.ErrAggregateBusy):
		return a.inProgress(ctx, err)
	case late && guard != nil: // not written: it waited for a slot, or for Postgres
		if err := a.store.Confirm(ctx); err != nil {
			return err
		}
		return sameKeyInProgress
	case late:
		return errors.Join(store.ErrUnavailable, err)
	}
	return err
}

// inProgress returns conflict, the 409 for a request that a concurrent one blocks, or
// ErrUnreplicated: while Postgres confirms no commits, the other request cannot finish. Any other
// failure of the check is ignored, because Postgres has just answered that the row is locked: many
// blocked requests at once make the check slow, which is not an outage.
func (a *API) inProgress(ctx context.Context, conflict error) error {
	if err := a.store.Confirm(ctx); errors.Is(err, store.ErrUnreplicated) {
		return err
	}
	return conflict
}

// lookUp checks whether a write with an unknown outcome was committed, and whether Postgres
// answered at all. A missing row proves nothing, because Postgres may still be committing it;
// the query is repeated unless once is set.
func (a *API) lookUp(
	ctx context.Context, exists func(context.Context, uuid.UUID) (bool, error), id uuid.UUID, once bool,
) (found, answers bool) {
	ctx, cancel := context.WithTimeout(ctx, unknownWait)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		there, err := withDeadline(ctx, func(ctx context.Context) (bool, error) { return exists(ctx, id) })
		if there {
			return true, true
		}
		if answers = answers || err == nil; answers && once {
			return false, true
		}
		select {
		case <-ctx.Done():
			return false, answers
		case <-again.C:
		}
	}
}
