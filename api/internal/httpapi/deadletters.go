package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
)

// DeadLetterStore is the part of *store.Store that dead letters use.
type DeadLetterStore interface {
	ListDeadLetters(ctx context.Context, company uuid.UUID, q store.LetterQuery) (store.LetterPage, error)
	FindDeadLetter(ctx context.Context, company, id uuid.UUID) (store.DeadLetter, error)
	RetryDeadLetter(ctx context.Context, l store.DeadLetter, r store.LetterRetry) error
	DiscardDeadLetter(ctx context.Context, l store.DeadLetter, by store.Actor, note string) (bool, error)
	CreateReplay(ctx context.Context, n store.NewReplay) (store.Replay, error)
	FindReplay(ctx context.Context, company, id uuid.UUID) (store.Replay, error)
}

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

// deadLetterDetails is a single dead letter with its email.
type deadLetterDetails struct {
	deadLetter
	Payload any           `json:"payload"`
	Email   *emailDetails `json:"email,omitempty"`
}

type deadLetterPage struct {
	DeadLetters []deadLetter `json:"deadLetters"`
	NextCursor  string       `json:"nextCursor,omitempty"`
}

// lastEvents is how many timeline events a dead letter shows: those of about two attempts.
const lastEvents = 10

const targetRule = "oneof=email:send mailing.process recipients.upsert"

func (a *API) listDeadLetters(c *gin.Context) error {
	wanted, err := readDeadLetterQuery(c.Request.URL.RawQuery, a.rules)
	if err != nil {
		return err
	}
	found, err := a.store.ListDeadLetters(c.Request.Context(), visitOf(c).caller.CompanyID, wanted)
	if err != nil {
		return err
	}
	page := deadLetterPage{DeadLetters: make([]deadLetter, len(found.Letters))}
	for i, l := range found.Letters {
		page.DeadLetters[i] = deadLetterOf(l)
	}
	if found.Next != (store.LetterCursor{}) {
		if page.NextCursor, err = encodeCursor(deadLetterCursor{found.Next.At.UTC(), found.Next.ID}); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, page)
	return nil
}

// deadLetterCursor is the last row of a page.
type deadLetterCursor struct {
	At time.Time `json:"t"`
	ID uuid.UUID `json:"i"`
}

func readDeadLetterQuery(raw string, checks *rules.Rules) (store.LetterQuery, error) {
	q, err := openQuery(raw, checks)
	if err != nil {
		return store.LetterQuery{}, err
	}
	wanted := store.LetterQuery{
		LetterFilter: store.LetterFilter{
			Reason: q.text("reason", "max=64,printable"), Target: q.text("target", targetRule), Recipient: q.address("recipient"),
			CreatedAfter: q.moment("createdAfter"), CreatedBefore: q.moment("createdBefore"),
		},
		Limit: q.limit("limit"),
	}
	if id, err := rules.ParseID(q.text("mailingId", "id")); err == nil {
		wanted.MailingID = &id
	}
	if resolved := q.text("resolved", "oneof=true false"); resolved != "" {
		yes := resolved == "true"
		wanted.Resolved = &yes
	}
	if text, given := q.get("cursor"); given {
		var last deadLetterCursor
		if json.Unmarshal(decodeCursor(text), &last) != nil || !withinReason(last.At) {
			q.faults.Add("cursor", "INVALID_CURSOR", "must be the nextCursor of a page")
		}
		wanted.Cursor = store.LetterCursor(last)
	}
	return wanted, q.close()
}

func deadLetterOf(l store.DeadLetter) deadLetter {
	return deadLetter{
		ID: l.ID.String(), Target: l.Target, Reason: l.Reason, Detail: l.Detail, Attempts: l.Attempts, OutboxID: l.OutboxID,
		MailingID: l.MailingID, Recipient: l.Recipient, CreatedAt: l.CreatedAt.UTC(), ResolvedAt: inUTC(l.ResolvedAt),
		Resolution: l.Resolution, ResolvedBy: l.ResolvedBy, Note: l.Note, ReplayID: l.ReplayID,
	}
}

func (a *API) showDeadLetter(c *gin.Context) error {
	found, err := a.findDeadLetter(c)
	if err != nil {
		return err
	}
	return a.answerDeadLetter(c, http.StatusOK, found)
}

// retryDeadLetter retries one dead letter.
func (a *API) retryDeadLetter(c *gin.Context) error {
	found, err := a.findDeadLetter(c)
	switch {
	case err != nil:
		return err
	case found.Target != email.TargetSend && !a.hasRabbitMQ:
		return bulkDisabled
	}
	v := visitOf(c)
	err = a.store.RetryDeadLetter(c.Request.Context(), found, store.LetterRetry{Actor: actorOf(v), RequestID: v.requestID, TTL: a.ttl})
	var nothing *store.NotReplayableError
	switch {
	case errors.As(err, &nothing):
		return deadLetterNotReplayable(nothing.Reason)
	case err != nil:
		return err
	}
	a.wake(store.Lanes{Company: visitOf(c).caller.CompanyID})
	return a.answerCurrentDeadLetter(c, http.StatusAccepted)
}

// discardRequest is the optional body of a discard.
type discardRequest struct {
	Note *string `json:"note" validate:"omitnil,min=1,max=200,line"`
}

// discardDeadLetter resolves one dead letter without retrying it. It is idempotent.
func (a *API) discardDeadLetter(c *gin.Context) error {
	found, err := a.findDeadLetter(c)
	if err != nil {
		return err
	}
	var request discardRequest
	if c.Request.ContentLength != 0 {
		document, err := readJSON(c)
		if err != nil {
			return err
		}
		read, wrong := a.discards.Read(document)
		if wrong := a.rules.Check(&read, wrong); len(wrong) > 0 {
			return invalid(wrong)
		}
		request = read
	}
	discarded, err := a.store.DiscardDeadLetter(c.Request.Context(), found, actorOf(visitOf(c)), value(request.Note, ""))
	if err != nil {
		return err
	}
	if !discarded {
		now, err := a.findDeadLetter(c)
		if err != nil {
			return err
		}
		if value(now.Resolution, store.Retried) != store.Discarded {
			return alreadyResolved
		}
	}
	return a.answerCurrentDeadLetter(c, http.StatusOK)
}

func actorOf(v *requestState) store.Actor { return store.Actor{By: store.ByAPI, Name: v.caller.KeyID} }

// findDeadLetter finds the dead letter with the id in the path.
func (a *API) findDeadLetter(c *gin.Context) (store.DeadLetter, error) {
	id, err := rules.ParseID(c.Param("id"))
	if err != nil {
		return store.DeadLetter{}, noSuchDeadLetter
	}
	v := visitOf(c)
	found, err := a.store.FindDeadLetter(c.Request.Context(), v.caller.CompanyID, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.DeadLetter{}, noSuchDeadLetter
	case err != nil:
		return store.DeadLetter{}, err
	}
	if found.OutboxID != nil {
		v.outboxID = found.OutboxID.String()
	}
	return found, nil
}

func (a *API) answerCurrentDeadLetter(c *gin.Context, status int) error {
	found, err := a.findDeadLetter(c)
	if err != nil {
		return err
	}
	return a.answerDeadLetter(c, status, found)
}

func (a *API) answerDeadLetter(c *gin.Context, status int, l store.DeadLetter) error {
	details := deadLetterDetails{deadLetter: deadLetterOf(l)}
	decoder := json.NewDecoder(bytes.NewReader(l.Payload))
	decoder.UseNumber()
	if err := decoder.Decode(&details.Payload); err != nil {
		return fmt.Errorf("read payload: %w", err)
	}
	email.MaskHashes(details.Payload)
	if l.Target == email.TargetSend && l.OutboxID != nil {
		found, err := a.readEmail(c, *l.OutboxID)
		switch {
		case errors.Is(err, store.ErrNotFound): // purged
		case err != nil:
			return err
		default:
			shown, err := a.detailsOf(c, found)
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
