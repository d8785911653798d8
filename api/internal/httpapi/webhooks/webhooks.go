package webhooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/shared/rules"
	"email-gateway/shared/standardwebhook"
	"email-gateway/shared/store"
	"email-gateway/shared/store/webhook"
	"email-gateway/shared/uuidv7"
)

// createRequest is the body of POST /v1/webhooks.
type createRequest struct {
	URL         string   `json:"url" validate:"required"`
	Description *string  `json:"description" validate:"omitnil,min=1,max=200,line"`
	Types       []string `json:"types" validate:"max=50"`
}

type endpointAnswer struct {
	ID             uuid.UUID       `json:"id"`
	URL            string          `json:"url"`
	Description    *string         `json:"description,omitempty"`
	Types          []string        `json:"types"`
	Status         webhook.Status  `json:"status"`
	DisabledReason *webhook.Reason `json:"disabledReason,omitempty"`
	DisabledAt     *time.Time      `json:"disabledAt,omitempty"`
	Health         string          `json:"health"`
	Failures       int             `json:"consecutiveFailures"`
	FailingSince   *time.Time      `json:"failingSince,omitempty"`
	LastSuccessAt  *time.Time      `json:"lastSuccessAt,omitempty"`
	LastFailureAt  *time.Time      `json:"lastFailureAt,omitempty"`
	LastError      *string         `json:"lastError,omitempty"`
	Open           int             `json:"openDeliveries"`
	OldSecretUntil *time.Time      `json:"previousSecretExpiresAt,omitempty"`
	CreatedAt      time.Time       `json:"createdAt"`
	UpdatedAt      time.Time       `json:"updatedAt"`
	// Secret is only in the response that creates or rotates it.
	Secret string `json:"secret,omitempty"`
}

type endpointList struct {
	Webhooks []endpointAnswer `json:"webhooks"`
}

// createRoute is part of the ids of endpoints that were created with an Idempotency-Key. It must never change.
const createRoute = "POST /v1/webhooks"

// Create creates an endpoint. Only this response, and a repeated one, show its secret. With an Idempotency-Key the id depends on
// the key and the body: see webhook.KeyedID.
func (h *Handlers) Create(c *gin.Context) error {
	document, err := reqbody.ReadJSON(c)
	if err != nil {
		return err
	}
	key, err := accept.KeyOf(c.Request.Header, createRoute, document, nil)
	if err != nil {
		return err
	}
	request, found := h.creates.Read(document)
	faults := h.rules.Check(&request, found)
	h.checkURL(request.URL, &faults)
	checkTypes(request.Types, &faults)
	if len(faults) > 0 {
		return problem.Invalid(faults)
	}
	company, id := reqctx.CompanyOf(c), uuidv7.New()
	if key != nil {
		id = webhook.KeyedID(company, key.Route, key.Key, key.Sum)
	}
	text, encrypted, err := h.newSecret(company)
	if err != nil {
		return err
	}
	made, err := run(c, h, func(ctx context.Context) (webhook.Endpoint, error) {
		return h.store.Create(ctx, webhook.Endpoint{
			ID: id, CompanyID: company, URL: request.URL, Description: request.Description, Types: request.Types, Secret: encrypted,
		})
	})
	if err != nil {
		return problemOf(err)
	}
	if made.ID != id {
		return keyReused
	}
	if !bytes.Equal(made.Secret, encrypted) { // an earlier request with the key has created it
		if text, err = h.ring.Open(company, made.Secret); err != nil {
			return fmt.Errorf("decrypt webhook secret: %w", err)
		}
		c.Header("Idempotent-Replayed", "true")
	}
	c.Header("Location", "/v1/webhooks/"+id.String())
	respond(c, http.StatusCreated, made, text)
	return nil
}

// List handles GET /v1/webhooks.
func (h *Handlers) List(c *gin.Context) error {
	found, err := run(c, h, func(ctx context.Context) ([]webhook.Endpoint, error) { return h.store.List(ctx, reqctx.CompanyOf(c)) })
	if err != nil {
		return err
	}
	answer := endpointList{Webhooks: make([]endpointAnswer, len(found))}
	for i, e := range found {
		answer.Webhooks[i] = answerOf(e)
	}
	c.JSON(http.StatusOK, answer)
	return nil
}

// Show handles GET /v1/webhooks/{id}.
func (h *Handlers) Show(c *gin.Context) error { return h.step(c, h.store.Find) }

// Delete deletes an endpoint, or a part of its deliveries.
func (h *Handlers) Delete(c *gin.Context) error {
	id, err := endpointID(c)
	if err != nil {
		return err
	}
	ctx, company := c.Request.Context(), reqctx.CompanyOf(c)
	if err := h.slots.Do(ctx, company, func() error { return h.store.Delete(ctx, company, id) }); err != nil {
		return problemOf(err)
	}
	c.Status(http.StatusNoContent)
	return nil
}

// run runs a statement, or a transaction, in a slot of the company.
func run[R any](c *gin.Context, h *Handlers, statement func(ctx context.Context) (R, error)) (R, error) {
	ctx := c.Request.Context()
	return slots.Run(ctx, h.slots, reqctx.CompanyOf(c), func() (R, error) { return statement(ctx) })
}

// respond responds with the endpoint. secret is "" unless it was created by this request.
func respond(c *gin.Context, status int, e webhook.Endpoint, secret string) {
	shown := answerOf(e)
	shown.Secret = secret
	c.JSON(status, shown)
}

func (h *Handlers) checkURL(text string, faults *rules.Faults) {
	if faults.Has("url") {
		return
	}
	if err := h.policy.CheckURL(text); err != nil {
		faults.Add("url", "INVALID_URL", err.Error())
	}
}

func checkTypes(entries []string, faults *rules.Faults) {
	for i, entry := range entries {
		if err := standardwebhook.CheckType(entry, webhook.Types()); err != nil {
			faults.Add("types["+strconv.Itoa(i)+"]", "INVALID_EVENT_TYPE", err.Error())
		}
	}
}

func answerOf(e webhook.Endpoint) endpointAnswer {
	return endpointAnswer{
		ID: e.ID, URL: e.URL, Description: e.Description, Types: append([]string{}, e.Types...), Status: e.Status,
		DisabledReason: e.DisabledReason, DisabledAt: response.InUTC(e.DisabledAt), Health: e.Health(), Failures: e.Failures, FailingSince: response.InUTC(e.FailingSince),
		LastSuccessAt: response.InUTC(e.LastSuccessAt), LastFailureAt: response.InUTC(e.LastFailureAt), LastError: e.LastError, Open: e.Open,
		OldSecretUntil: response.InUTC(e.OldSecretUntil), CreatedAt: e.CreatedAt.UTC(), UpdatedAt: e.UpdatedAt.UTC(),
	}
}

func endpointID(c *gin.Context) (uuid.UUID, error) {
	id, err := rules.ParseID(c.Param("id"))
	if err != nil {
		return uuid.Nil, noSuchEndpoint
	}
	return id, nil
}

// problemOf maps the errors of the store.
func problemOf(err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchEndpoint
	case errors.Is(err, webhook.ErrTooManyEndpoints):
		return tooManyEndpoints
	case errors.Is(err, webhook.ErrTooManyReplays):
		return tooManyReplays
	case errors.Is(err, webhook.ErrDisabledByOperator):
		return disabledByOperator
	case errors.Is(err, webhook.ErrDisabled):
		return disabled
	case errors.Is(err, webhook.ErrDeleting):
		return deleting
	}
	return err
}
