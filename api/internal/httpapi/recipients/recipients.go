package recipients

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
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/uuidv7"
)

// addRoute identifies the operation in idempotency_keys. It must never change: keys
// of earlier releases are stored with it.
const addRoute = "POST /v1/recipients"

// accepted is the 202 response. The ids can be used in emails immediately.
type accepted struct {
	ID        string   `json:"id,omitempty"`  // for one recipient
	IDs       []string `json:"ids,omitempty"` // for several, in the order of the request
	RequestID string   `json:"requestId"`
}

// recipientDetails is a recipient in a response. A CPF or CNPJ is masked as in logs.
type recipientDetails struct {
	ID          string    `json:"id"`
	ExternalID  string    `json:"externalId,omitempty"`
	CPFCNPJHash string    `json:"cpfCnpjHash,omitempty"`
	RazaoSocial string    `json:"razaoSocial,omitempty"`
	Nome        string    `json:"nome,omitempty"`
	Email       string    `json:"email"`
	Pending     bool      `json:"pending"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
}

// Add accepts one recipient, or up to a thousand.
func (h *Handlers) Add(c *gin.Context) error {
	document, err := reqbody.ReadJSON(c)
	if err != nil {
		return err
	}
	key, err := accept.KeyOf(c.Request.Header, addRoute, document, h.reader.HashKey)
	if err != nil {
		return err
	}
	v := reqctx.StateOf(c)
	people, err := h.reader.read(v.Caller.CompanyID, document)
	if err != nil {
		return h.accept.ReplayInstead(c, key, err)
	}
	answered := accepted{RequestID: v.RequestID}
	if document.Has(listField) {
		for _, r := range people {
			answered.IDs = append(answered.IDs, r.ID.String())
		}
	} else {
		answered.ID = people[0].ID.String()
		v.Location = accept.RecipientPath + answered.ID
	}
	answer, err := json.Marshal(answered)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	first := people[0].OutboxID
	ctx, span := h.tracer.Start(c.Request.Context(), "accept", telemetry.Producer)
	defer span.End()
	err = h.accept.Commit(ctx, first, key, unknown(), func(ctx context.Context) error {
		return h.store.AcceptRecipients(ctx, recipient.NewRecipients{
			CompanyID: v.Caller.CompanyID, RequestID: v.RequestID, CreatedAt: uuidv7.Time(first),
			Recipients: people, Idempotency: key.Record(answer), Traceparent: telemetry.Traceparent(ctx),
		})
	})
	var used *idempotency.UsedError
	switch {
	case errors.As(err, &used):
		v.Location = "" // use that of the stored response
		return h.accept.Replay(c, key, used.Answer)
	case err != nil:
		v.Location = ""
		return h.accept.ReplayInstead(c, key, err)
	}
	h.wake(lane.Lanes{Company: v.Caller.CompanyID, Queue: email.QueueRecipients})
	response.Accepted(c, http.StatusAccepted, answer)
	return nil
}

// Show handles GET /v1/recipients/{id}.
func (h *Handlers) Show(c *gin.Context) error {
	id, err := recipientID(c)
	if err != nil {
		return err
	}
	found, err := h.store.FindRecipient(c.Request.Context(), reqctx.CompanyOf(c), id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchRecipient
	case err != nil:
		return err
	}
	c.JSON(http.StatusOK, recipientDetails{
		ID: found.ID.String(), ExternalID: found.ExternalID, CPFCNPJHash: email.MaskHash(found.CPFCNPJHash),
		RazaoSocial: found.RazaoSocial, Nome: found.Nome, Email: found.Email, Pending: found.Pending,
		CreatedAt: found.CreatedAt.UTC(), UpdatedAt: found.UpdatedAt.UTC(),
	})
	return nil
}

// Delete deletes a recipient. It is idempotent.
func (h *Handlers) Delete(c *gin.Context) error {
	id, err := recipientID(c)
	if err != nil {
		return err
	}
	err = h.store.DeleteRecipient(c.Request.Context(), reqctx.CompanyOf(c), id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchRecipient
	case err != nil:
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}

// recipientID parses the id in the path. A malformed id is reported as not found.
func recipientID(c *gin.Context) (uuid.UUID, error) {
	id, err := rules.ParseID(c.Param("id"))
	if err != nil {
		return uuid.Nil, noSuchRecipient
	}
	return id, nil
}
