package sending

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/uuidv7"
)

// batchRoute identifies the operation in idempotency_keys. It must never change: keys of earlier
// releases are stored with it.
const batchRoute = "POST /v1/email/batch"

const (
	// batchItems is the maximum number of emails of a batch.
	batchItems = 500
	// batchField is the array of emails in the body.
	batchField = "emails"
	// batchPartial is the value of the parameter mode that rejects only invalid items.
	batchPartial, batchStrict = "partial", "strict"
)

// SendBatch handles POST /v1/email/batch. Each item is composed like a single email; all that are
// accepted are committed in one transaction, with the response if there is an Idempotency-Key.
func (h *Handlers) SendBatch(c *gin.Context) error {
	partial, err := h.batchMode(c)
	if err != nil {
		return err
	}
	b, err := h.composeBatch(c, partial)
	if err != nil {
		return err
	}
	v := reqctx.StateOf(c)
	if refusal := b.refusal(); refusal != nil {
		return h.accept.ReplayInstead(c, b.key, refusal)
	}
	if len(b.emails) == 0 && b.key == nil { // nothing to commit
		answer, err := b.answer(v.RequestID, nil)
		if err != nil {
			return err
		}
		response.Accepted(c, http.StatusAccepted, answer)
		return nil
	}
	id := uuidv7.New()
	ctx, span := h.tracer.Start(c.Request.Context(), "accept", telemetry.Producer)
	defer span.End()
	parent := telemetry.Traceparent(ctx)
	for i := range b.emails {
		b.emails[i].Job.Traceparent = parent
	}
	outcome, err := h.acceptBatch(ctx, b.key, outbox.NewBatch{
		ID: id, CompanyID: v.Caller.CompanyID, Emails: b.emails, Idempotency: b.key.Record(nil), Partial: partial,
		Answer: func(results []outbox.BatchResult) ([]byte, error) { return b.answer(v.RequestID, results) },
	})
	var used *idempotency.UsedError
	switch {
	case errors.As(err, &used):
		return h.accept.Replay(c, b.key, used.Answer)
	case err != nil:
		if deleted, ok := errors.AsType[*file.GoneError](err); ok {
			err = b.gone(deleted)
		}
		return h.accept.ReplayInstead(c, b.key, err)
	}
	if outcome.Inserted == uuid.Nil { // the commit confirmed no row of the earlier emails
		if err := h.store.Confirm(ctx); err != nil {
			return err
		}
	}
	if lanes := b.lanes(v.Caller.CompanyID, outcome.Results); len(lanes) > 0 {
		h.wake(lanes...)
	}
	accept.RecordIDs(v, outcome.Answer)
	response.Accepted(c, http.StatusAccepted, outcome.Answer)
	return nil
}

// batchMode reads the parameter mode.
func (h *Handlers) batchMode(c *gin.Context) (partial bool, err error) {
	q, err := query.Open(c.Request, h.rules)
	if err != nil {
		return false, err
	}
	mode := q.Text("mode", "oneof="+batchStrict+" "+batchPartial)
	return mode == batchPartial, q.Close()
}

// setPartialSum makes the key of a partial batch differ from that of a strict one with the same body.
func setPartialSum(key *accept.Key) {
	if key != nil {
		sum := sha256.Sum256(append([]byte(batchPartial), key.Sum...))
		key.Sum = sum[:]
	}
}

// batchAccepted is the 202 response.
type batchAccepted struct {
	RequestID  string        `json:"requestId"`
	Accepted   int           `json:"accepted"`
	Duplicates int           `json:"duplicates"`
	Rejected   int           `json:"rejected"`
	Emails     []batchResult `json:"emails"`
}

// batchResult is the result of one item: the fields of accepted, or an error. What is not known of an
// earlier email is missing.
type batchResult struct {
	Index     int             `json:"index"`
	Result    string          `json:"result"`
	OutboxID  string          `json:"outboxId,omitempty"`
	JobID     string          `json:"jobId,omitempty"`
	RequestID string          `json:"requestId,omitempty"`
	Status    email.Status    `json:"status,omitempty"`
	CreatedAt *time.Time      `json:"createdAt,omitempty"`
	Error     *batchItemError `json:"error,omitempty"`
}

// batchItemError is the problem of an item, as a request with this item alone would get it.
type batchItemError struct {
	Status int           `json:"status"`
	Code   string        `json:"code"`
	Detail string        `json:"detail"`
	Errors []rules.Fault `json:"errors,omitempty"`
	*problem.QuotaUse
}

// answer makes the response. results are those of b.emails.
func (b *batchRequest) answer(requestID string, results []outbox.BatchResult) ([]byte, error) {
	answered := batchAccepted{RequestID: requestID, Emails: make([]batchResult, len(b.refused))}
	next := 0
	for i, refusal := range b.refused {
		r := &answered.Emails[i]
		r.Index = i
		if refusal != nil {
			r.reject(*refusal)
			answered.Rejected++
			continue
		}
		mail, result := b.emails[next], results[next]
		next++
		switch {
		case result.Over != nil:
			r.reject(problem.QuotaExceeded(result.Over))
			answered.Rejected++
		case result.Earlier != nil:
			r.Result = "duplicate"
			r.describe(*result.Earlier)
			answered.Duplicates++
		default:
			r.Result = "accepted"
			r.describe(outbox.EarlierEmail{ID: mail.ID, RequestID: requestID, Status: email.Pending, CreatedAt: mail.CreatedAt})
			answered.Accepted++
		}
	}
	text, err := json.Marshal(answered)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return text, nil
}

func (r *batchResult) reject(p problem.Problem) {
	r.Result = "rejected"
	r.Error = &batchItemError{Status: p.Status, Code: p.Code, Detail: p.Detail, Errors: p.Faults, QuotaUse: p.Quota}
}

func (r *batchResult) describe(e outbox.EarlierEmail) {
	r.OutboxID, r.JobID, r.RequestID, r.Status = e.ID.String(), e.ID.String(), e.RequestID, e.Status
	if !e.CreatedAt.IsZero() {
		r.CreatedAt = &e.CreatedAt
	}
}

// lanes are those on which there is work now or soon.
func (b *batchRequest) lanes(company uuid.UUID, results []outbox.BatchResult) []lane.Lanes {
	var all []lane.Lanes
	seen := map[string]bool{}
	for i, result := range results {
		queue := email.QueueFor(b.emails[i].Priority)
		if result.Earlier == nil && result.Over == nil && isSoon(b.emails[i].SendAt) && !seen[queue] {
			seen[queue] = true
			all = append(all, lane.Lanes{Company: company, Queue: queue})
		}
	}
	return all
}
