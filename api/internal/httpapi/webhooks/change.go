package webhooks

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/standardwebhook"
	"email-gateway/shared/store/webhook"
)

// changeRequest is the body of PATCH /v1/webhooks/{id}.
type changeRequest struct {
	URL         *string   `json:"url" validate:"omitnil,min=1" blank:"refused"`
	Description *string   `json:"description" validate:"omitnil,max=200,line" blank:"removes"`
	Types       *[]string `json:"types" validate:"omitnil,max=50"`
}

// Change sets the given fields.
func (h *Handlers) Change(c *gin.Context) error {
	if _, err := endpointID(c); err != nil {
		return err
	}
	document, err := reqbody.ReadJSON(c)
	if err != nil {
		return err
	}
	request, found := h.changes.Read(document)
	faults := h.rules.Check(&request, found)
	if request.URL != nil {
		h.checkURL(*request.URL, &faults)
	}
	if request.Types != nil {
		checkTypes(*request.Types, &faults)
	}
	if len(faults) > 0 {
		return problem.Invalid(faults)
	}
	change := webhook.Change{URL: request.URL, Description: request.Description, Types: request.Types}
	return h.step(c, func(ctx context.Context, company, id uuid.UUID) (webhook.Endpoint, error) {
		return h.store.Update(ctx, company, id, change)
	})
}

// RotateSecret creates a new secret. The old one signs too for standardwebhook.RotationTime.
func (h *Handlers) RotateSecret(c *gin.Context) error {
	id, err := endpointID(c)
	if err != nil {
		return err
	}
	text, encrypted, err := h.newSecret(reqctx.CompanyOf(c))
	if err != nil {
		return err
	}
	rotated, err := run(c, h, func(ctx context.Context) (webhook.Endpoint, error) {
		return h.store.Rotate(ctx, reqctx.CompanyOf(c), id, encrypted, standardwebhook.RotationTime)
	})
	if err != nil {
		return problemOf(err)
	}
	respond(c, http.StatusOK, rotated, text)
	return nil
}

// Enable enables an endpoint that was disabled.
func (h *Handlers) Enable(c *gin.Context) error { return h.step(c, h.store.Enable) }

// Disable stops deliveries to an endpoint.
func (h *Handlers) Disable(c *gin.Context) error { return h.step(c, h.store.Disable) }

// step finds or changes an endpoint and responds with it.
func (h *Handlers) step(c *gin.Context, do func(ctx context.Context, company, id uuid.UUID) (webhook.Endpoint, error)) error {
	id, err := endpointID(c)
	if err != nil {
		return err
	}
	e, err := run(c, h, func(ctx context.Context) (webhook.Endpoint, error) { return do(ctx, reqctx.CompanyOf(c), id) })
	if err != nil {
		return problemOf(err)
	}
	respond(c, http.StatusOK, e, "")
	return nil
}

// newSecret returns a secret as text and encrypted.
func (h *Handlers) newSecret(company uuid.UUID) (text string, encrypted []byte, err error) {
	secret, err := standardwebhook.NewSecret()
	if err != nil {
		return "", nil, err
	}
	if encrypted, err = h.ring.Seal(company, secret.Text()); err != nil {
		return "", nil, fmt.Errorf("encrypt webhook secret: %w", err)
	}
	return secret.Text(), encrypted, nil
}
