package sending

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/shared/email"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
)

// sendRoute identifies the operation in idempotency_keys. It must never change: keys of
// earlier releases are stored with it.
const sendRoute = "POST /v1/email/send"

// accepted is the 202 response: the row is durably stored.
type accepted struct {
	OutboxID  string       `json:"outboxId"`
	JobID     string       `json:"jobId"`
	RequestID string       `json:"requestId"`
	Status    email.Status `json:"status"`
	CreatedAt time.Time    `json:"createdAt"`
}

// Send handles POST /v1/email/send. It reads the body, composes the email and the response,
// and commits both with the Idempotency-Key in one transaction (accept); then it answers 202. A
// repeated request gets the first response.
func (h *Handlers) Send(c *gin.Context) error {
	document, contents, err := reqbody.ReadWithAttachments(c, h.files.Limits)
	if err != nil {
		return err
	}
	defer contents.Close()
	key, err := accept.KeyOf(c.Request.Header, sendRoute, document, h.composer.HashKey)
	if err != nil {
		return err
	}
	v := reqctx.StateOf(c)
	mail, pending, err := h.composer.compose(c.Request.Context(), v.Caller, v.RequestID, document, contents)
	if err != nil {
		return h.accept.ReplayInstead(c, key, err)
	}
	id := mail.ID.String()
	answer, err := json.Marshal(accepted{
		OutboxID: id, JobID: id, RequestID: v.RequestID, Status: email.Pending, CreatedAt: mail.CreatedAt,
	})
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	mail.Idempotency = key.Record(answer)
	v.OutboxID, v.Status, v.Location = id, email.Pending, accept.EmailPath+id

	ctx, span := h.tracer.Start(c.Request.Context(), "accept", telemetry.Producer)
	defer span.End()
	mail.Job.Traceparent = telemetry.Traceparent(ctx)
	err = h.acceptFiles(ctx, &mail, pending, func() error {
		return h.accept.Commit(ctx, mail.ID, key, accept.Unknown("email", id), func(ctx context.Context) error {
			return h.accepter.Accept(ctx, mail)
		})
	})
	var used *idempotency.UsedError
	var taken *outbox.AggregateTakenError
	switch {
	case errors.As(err, &used):
		return h.accept.Replay(c, key, used.Answer)
	case errors.As(err, &taken):
		return h.answerEarlier(c, key, taken.ID)
	case err != nil:
		return h.accept.ReplayInstead(c, key, err)
	}
	if isSoon(mail.SendAt) {
		h.wake(lane.Lanes{Company: mail.CompanyID, Queue: email.QueueFor(mail.Priority)})
	}
	response.Accepted(c, http.StatusAccepted, answer)
	return nil
}

// wakeAhead: dispatchers are woken for emails that are due within this time. Without a wake-up a dispatcher finds a new row
// at once only if its id is less than 2 s old, which it may not be after a long upload, and else with the full listing every
// 30 s.
const wakeAhead = time.Minute

func isSoon(sendAt time.Time) bool { return time.Until(sendAt) < wakeAhead }

// answerEarlier responds with the email of the same aggregate and event type that was accepted before.
func (h *Handlers) answerEarlier(c *gin.Context, key *accept.Key, id uuid.UUID) error {
	earlier, err := h.store.FindEmail(c.Request.Context(), reqctx.CompanyOf(c), id)
	switch {
	case err != nil:
		return err
	case earlier.Status == email.Cancelled: // cancelled after the insert found it: the aggregate is free again
		return outbox.ErrAggregateBusy
	}
	reqctx.StateOf(c).SetEmail(earlier)
	answer, err := json.Marshal(accepted{
		OutboxID: id.String(), JobID: id.String(), RequestID: earlier.RequestID, Status: earlier.Status, CreatedAt: earlier.CreatedAt.UTC(),
	})
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	return h.accept.AnswerEarlier(c, key, id, accept.Unknown("email", id.String()), answer)
}
