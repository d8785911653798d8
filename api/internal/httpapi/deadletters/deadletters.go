package deadletters

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/emails"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
)

// deadLetter is a dead letter in a list.
type deadLetter struct {
	ID         string            `json:"id"`
	Target     string            `json:"target"`
	Reason     string            `json:"reason"`
	Detail     *string           `json:"detail,omitempty"`
	Attempts   int               `json:"attempts"`
	OutboxID   *uuid.UUID        `json:"outboxId,omitempty"`
	MailingID  *uuid.UUID        `json:"mailingId,omitempty"`
	Recipient  *string           `json:"recipient,omitempty"`
	CreatedAt  time.Time         `json:"createdAt"`
	ResolvedAt *time.Time        `json:"resolvedAt,omitempty"`
	Resolution *store.Resolution `json:"resolution,omitempty"`
	ResolvedBy *string           `json:"resolvedBy,omitempty"`
	Note       *string           `json:"note,omitempty"`
	ReplayID   *uuid.UUID        `json:"replayId,omitempty"`
}

// letterDetails is a single dead letter with its email.
type letterDetails struct {
	deadLetter
	Payload any             `json:"payload"`
	Email   *emails.Details `json:"email,omitempty"`
}

type listPage struct {
	DeadLetters []deadLetter `json:"deadLetters"`
	NextCursor  string       `json:"nextCursor,omitempty"`
}

// lastEvents is how many timeline events a dead letter shows: those of about two attempts.
const lastEvents = 10

const targetRule = "oneof=email:send mailing.process recipients.upsert"

func (h *Handlers) List(c *gin.Context) error {
	wanted, err := readQuery(c.Request.URL.RawQuery, h.rules)
	if err != nil {
		return err
	}
	found, err := h.store.ListDeadLetters(c.Request.Context(), reqctx.CompanyOf(c), wanted)
	if err != nil {
		return err
	}
	page := listPage{DeadLetters: make([]deadLetter, len(found.Letters))}
	for i, l := range found.Letters {
		page.DeadLetters[i] = deadLetterOf(l)
	}
	if found.Next != (store.LetterCursor{}) {
		if page.NextCursor, err = query.EncodeCursor(letterCursor{found.Next.At.UTC(), found.Next.ID}); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, page)
	return nil
}

// letterCursor is the last row of a page.
type letterCursor struct {
	At time.Time `json:"t"`
	ID uuid.UUID `json:"i"`
}

func readQuery(raw string, checks *rules.Rules) (store.LetterQuery, error) {
	q, err := query.Open(raw, checks)
	if err != nil {
		return store.LetterQuery{}, err
	}
	wanted := store.LetterQuery{
		LetterFilter: store.LetterFilter{
			Reason: q.Text("reason", "max=64,printable"), Target: q.Text("target", targetRule), Recipient: q.Address("recipient"),
			CreatedAfter: q.Moment("createdAfter"), CreatedBefore: q.Moment("createdBefore"),
		},
		Limit: q.Limit("limit"),
	}
	if id, err := rules.ParseID(q.Text("mailingId", "id")); err == nil {
		wanted.MailingID = &id
	}
	if resolved := q.Text("resolved", "oneof=true false"); resolved != "" {
		yes := resolved == "true"
		wanted.Resolved = &yes
	}
	if text, given := q.Get("cursor"); given {
		var last letterCursor
		if json.Unmarshal(query.DecodeCursor(text), &last) != nil || !query.WithinReason(last.At) {
			q.Faults.Add("cursor", "INVALID_CURSOR", "must be the nextCursor of a page")
		}
		wanted.Cursor = store.LetterCursor(last)
	}
	return wanted, q.Close()
}

func deadLetterOf(l store.DeadLetter) deadLetter {
	return deadLetter{
		ID: l.ID.String(), Target: l.Target, Reason: l.Reason, Detail: l.Detail, Attempts: l.Attempts, OutboxID: l.OutboxID,
		MailingID: l.MailingID, Recipient: l.Recipient, CreatedAt: l.CreatedAt.UTC(), ResolvedAt: response.InUTC(l.ResolvedAt),
		Resolution: l.Resolution, ResolvedBy: l.ResolvedBy, Note: l.Note, ReplayID: l.ReplayID,
	}
}

func (h *Handlers) Show(c *gin.Context) error {
	found, err := h.find(c)
	if err != nil {
		return err
	}
	return h.answer(c, http.StatusOK, found)
}

// Retry retries one dead letter.
func (h *Handlers) Retry(c *gin.Context) error {
	found, err := h.find(c)
	switch {
	case err != nil:
		return err
	case found.Target != email.TargetSend && !h.hasRabbitMQ:
		return problem.BulkDisabled
	}
	v := reqctx.StateOf(c)
	err = h.store.RetryDeadLetter(c.Request.Context(), found, store.LetterRetry{Actor: actorOf(v), RequestID: v.RequestID, TTL: h.ttl})
	var nothing *store.NotReplayableError
	switch {
	case errors.As(err, &nothing):
		return notReplayable(nothing.Reason)
	case err != nil:
		return err
	}
	h.wake(store.Lanes{Company: reqctx.CompanyOf(c)})
	return h.answerCurrent(c, http.StatusAccepted)
}

// discardRequest is the optional body of a discard.
type discardRequest struct {
	Note *string `json:"note" validate:"omitnil,min=1,max=200,line"`
}

// Discard resolves one dead letter without retrying it. It is idempotent.
func (h *Handlers) Discard(c *gin.Context) error {
	found, err := h.find(c)
	if err != nil {
		return err
	}
	var request discardRequest
	if c.Request.ContentLength != 0 {
		document, err := reqbody.ReadJSON(c)
		if err != nil {
			return err
		}
		read, wrong := h.discards.Read(document)
		if wrong := h.rules.Check(&read, wrong); len(wrong) > 0 {
			return problem.Invalid(wrong)
		}
		request = read
	}
	discarded, err := h.store.DiscardDeadLetter(c.Request.Context(), found, actorOf(reqctx.StateOf(c)), strictjson.Or(request.Note, ""))
	if err != nil {
		return err
	}
	if !discarded {
		now, err := h.find(c)
		if err != nil {
			return err
		}
		if strictjson.Or(now.Resolution, store.Retried) != store.Discarded {
			return alreadyResolved
		}
	}
	return h.answerCurrent(c, http.StatusOK)
}

func actorOf(v *reqctx.State) store.Actor { return store.Actor{By: store.ByAPI, Name: v.Caller.KeyID} }

// find finds the dead letter with the id in the path.
func (h *Handlers) find(c *gin.Context) (store.DeadLetter, error) {
	id, err := rules.ParseID(c.Param("id"))
	if err != nil {
		return store.DeadLetter{}, noSuchDeadLetter
	}
	v := reqctx.StateOf(c)
	found, err := h.store.FindDeadLetter(c.Request.Context(), v.Caller.CompanyID, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.DeadLetter{}, noSuchDeadLetter
	case err != nil:
		return store.DeadLetter{}, err
	}
	if found.OutboxID != nil {
		v.OutboxID = found.OutboxID.String()
	}
	return found, nil
}

func (h *Handlers) answerCurrent(c *gin.Context, status int) error {
	found, err := h.find(c)
	if err != nil {
		return err
	}
	return h.answer(c, status, found)
}

func (h *Handlers) answer(c *gin.Context, status int, l store.DeadLetter) error {
	details := letterDetails{deadLetter: deadLetterOf(l)}
	decoder := json.NewDecoder(bytes.NewReader(l.Payload))
	decoder.UseNumber()
	if err := decoder.Decode(&details.Payload); err != nil {
		return fmt.Errorf("read payload: %w", err)
	}
	email.MaskHashes(details.Payload)
	if l.Target == email.TargetSend && l.OutboxID != nil {
		found, err := h.emails.Read(c, *l.OutboxID)
		switch {
		case errors.Is(err, store.ErrNotFound): // purged
		case err != nil:
			return err
		default:
			shown, err := h.emails.DetailsOf(c, found)
			if err != nil {
				return err
			}
			shown.Events = shown.Events[max(0, len(shown.Events)-lastEvents):]
			details.Email = &shown
		}
	}
	c.JSON(status, details)
	return nil
}
