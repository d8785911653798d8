package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

// sendRoute names the operation in idempotency_keys. It must never change: keys of
// earlier releases stand under it.
const sendRoute = "POST /v1/email/send"

const (
	// twinWait is how long a request waits for another with its Idempotency-Key.
	twinWait = 5 * time.Second
	// acceptWait is how long any request waits: longer than a statement may take, since a commit that waits for a synchronous
	// standby is cancelled two seconds after that.
	acceptWait = 15 * time.Second
	// unknownWait is how long a commit that was not confirmed is looked for.
	unknownWait = 2 * time.Second
)

// emailPath is where emails are looked up.
const emailPath = "/v1/email/"

// accepted is the answer 202. Whoever has it can rely on the row.
type accepted struct {
	OutboxID  string       `json:"outboxId"`
	JobID     string       `json:"jobId"`
	RequestID string       `json:"requestId"`
	Status    email.Status `json:"status"`
	CreatedAt time.Time    `json:"createdAt"`
}

// sendEmail is POST /v1/email/send. It reads the body, makes an email of it (compose) and
// the answer, and commits both, with the Idempotency-Key, at once (accept): only then is
// the answer 202. A request that came before gets the answer of that one.
func (a *API) sendEmail(c *gin.Context) error {
	document, err := readJSON(c)
	if err != nil {
		return err
	}
	guard, err := guardOf(c.Request.Header, sendRoute, document, a.composer.hashKey)
	if err != nil {
		return err
	}
	v := visitOf(c)
	mail, err := a.composer.compose(c.Request.Context(), v.caller, v.requestID, document)
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
	err = a.accept(ctx, mail.ID, guard, acceptUnknown("email", id), func(ctx context.Context) error {
		return a.accepter.Accept(ctx, mail)
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

// answerEarlier answers with the email that was accepted before and is about the same.
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
	c.Data(status, "application/json", answer)
}

// accept commits a request's rows by insert; id is that of one of them. nil means that
// they are there, whatever the way to know that was, and unknown that nobody can tell;
// a client that left meanwhile changes nothing.
func (a *API) accept(ctx context.Context, id uuid.UUID, guard *onceGuard, unknown problem, insert func(context.Context) error) error {
	ctx = context.WithoutCancel(ctx)
	wait := acceptWait
	if guard != nil {
		wait = twinWait // for another insert with the same key
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
		case late && answers && guard != nil: // Postgres works, so it is the twin that holds the insert up
			return twinUnderWay
		}
		return unknown
	case late && guard != nil: // it was not written: it waited for its turn, or for Postgres
		return a.underWay(ctx, twinUnderWay)
	case late:
		return errors.Join(store.ErrUnavailable, err)
	case errors.Is(err, store.ErrInProgress), errors.Is(err, store.ErrAggregateBusy):
		return a.underWay(ctx, err)
	}
	return err
}

// underWay returns conflict, the 409 for a request that another one blocks, or ErrUnreplicated: while Postgres confirms
// no commits, the other request cannot finish.
func (a *API) underWay(ctx context.Context, conflict error) error {
	if err := a.store.Confirm(ctx); err != nil {
		return err
	}
	return conflict
}

// lookUp finds out whether a write whose answer was lost went through, and whether
// Postgres answered at all. Not finding the row proves nothing: Postgres may still be
// busy writing it, and is asked again, unless one answer is enough.
func (a *API) lookUp(
	ctx context.Context, exists func(context.Context, uuid.UUID) (bool, error), id uuid.UUID, once bool,
) (found, answers bool) {
	ctx, cancel := context.WithTimeout(ctx, unknownWait)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		there, err := within(ctx, func(ctx context.Context) (bool, error) { return exists(ctx, id) })
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
