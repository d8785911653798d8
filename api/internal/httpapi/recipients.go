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

	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

const (
	// recipientsRoute identifies the operation in idempotency_keys. It must never change: keys
	// of earlier releases are stored with it.
	recipientsRoute = "POST /v1/recipients"
	// recipientPath is the path of recipients.
	recipientPath = "/v1/recipients/"
)

// recipientsAccepted is the 202 response. The ids can be used in emails immediately.
type recipientsAccepted struct {
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

// needsRabbitMQ rejects requests that need RabbitMQ if there is none.
func needsRabbitMQ(there bool) func(*gin.Context) error {
	return func(*gin.Context) error {
		if !there {
			return bulkDisabled
		}
		return nil
	}
}

// addRecipients accepts one recipient, or up to a thousand.
func (a *API) addRecipients(c *gin.Context) error {
	document, err := readJSON(c)
	if err != nil {
		return err
	}
	guard, err := guardOf(c.Request.Header, recipientsRoute, document, a.composer.hashKey)
	if err != nil {
		return err
	}
	v := visitOf(c)
	people, err := a.recipients.read(v.caller.CompanyID, document)
	if err != nil {
		return a.replayInstead(c, guard, err)
	}
	answered := recipientsAccepted{RequestID: v.requestID}
	if document.Has(listField) {
		for _, r := range people {
			answered.IDs = append(answered.IDs, r.ID.String())
		}
	} else {
		answered.ID = people[0].ID.String()
		v.location = recipientPath + answered.ID
	}
	answer, err := json.Marshal(answered)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	first := people[0].OutboxID
	ctx, span := a.tracer.Start(c.Request.Context(), "accept", telemetry.Producer)
	defer span.End()
	err = a.accept(ctx, first, guard, recipientsUnknown(), func(ctx context.Context) error {
		return a.store.AcceptRecipients(ctx, store.NewRecipients{
			CompanyID: v.caller.CompanyID, RequestID: v.requestID, CreatedAt: timeOf(first),
			Recipients: people, Idempotency: guard.record(answer), Traceparent: telemetry.Traceparent(ctx),
		})
	})
	var used *store.KeyUsedError
	switch {
	case errors.As(err, &used):
		v.location = "" // use that of the stored response
		return a.replay(c, guard, used.Answer)
	case err != nil:
		v.location = ""
		return a.replayInstead(c, guard, err)
	}
	a.wake(store.Lanes{Company: v.caller.CompanyID, Queue: email.QueueRecipients})
	a.answerAccepted(c, http.StatusAccepted, answer)
	return nil
}

func (a *API) showRecipient(c *gin.Context) error {
	id, err := recipientIn(c)
	if err != nil {
		return err
	}
	found, err := a.store.FindRecipient(c.Request.Context(), visitOf(c).caller.CompanyID, id)
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

// deleteRecipient deletes a recipient. It is idempotent.
func (a *API) deleteRecipient(c *gin.Context) error {
	id, err := recipientIn(c)
	if err != nil {
		return err
	}
	err = a.store.DeleteRecipient(c.Request.Context(), visitOf(c).caller.CompanyID, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchRecipient
	case err != nil:
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}

// recipientIn parses the id in the path. A malformed id is reported as not found.
func recipientIn(c *gin.Context) (uuid.UUID, error) {
	id, err := rules.ParseID(c.Param("id"))
	if err != nil {
		return uuid.Nil, noSuchRecipient
	}
	return id, nil
}
