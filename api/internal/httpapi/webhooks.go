package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/keyring"
	"email-gateway/shared/rules"
	"email-gateway/shared/standardwebhook"
	"email-gateway/shared/store"
	"email-gateway/shared/store/webhook"
)

// WebhookStore is the part of *webhook.Store that requests use.
type WebhookStore interface {
	Create(ctx context.Context, e webhook.Endpoint) error
	List(ctx context.Context, company uuid.UUID) ([]webhook.Endpoint, error)
	Find(ctx context.Context, company, id uuid.UUID) (webhook.Endpoint, error)
	Update(ctx context.Context, company, id uuid.UUID, c webhook.Change) error
	Delete(ctx context.Context, company, id uuid.UUID) error
	Rotate(ctx context.Context, company, id uuid.UUID, secret []byte, keep time.Duration) error
	Enable(ctx context.Context, company, id uuid.UUID) error
	Disable(ctx context.Context, company, id uuid.UUID) error
	Deliveries(ctx context.Context, company, endpoint uuid.UUID, f webhook.DeliveryFilter) ([]webhook.Delivery, error)
	FindDelivery(ctx context.Context, company, endpoint, id uuid.UUID) (webhook.Delivery, error)
	RetryDelivery(ctx context.Context, company, endpoint, id uuid.UUID) error
	CreateTest(ctx context.Context, company, endpoint, id uuid.UUID) error
	CreateReplay(ctx context.Context, r webhook.Replay) error
	FindReplay(ctx context.Context, company, endpoint, id uuid.UUID) (webhook.Replay, error)
}

// webhookService handles requests about webhook endpoints.
type webhookService struct {
	store   WebhookStore
	slots   fairStore // limits the statements of one company
	rules   *rules.Rules
	ring    keyring.Ring
	private bool // endpoints may be http:// and private
	creates *strictjson.Reader[createWebhookRequest]
	changes *strictjson.Reader[changeWebhookRequest]
	replays *strictjson.Reader[replayWebhookRequest]
}

// createWebhookRequest is the body of POST /v1/webhooks.
type createWebhookRequest struct {
	URL         string   `json:"url" validate:"required"`
	Description *string  `json:"description" validate:"omitnil,min=1,max=200,line"`
	Types       []string `json:"types" validate:"max=50"`
}

// changeWebhookRequest is the body of PATCH /v1/webhooks/{id}.
type changeWebhookRequest struct {
	URL         *string   `json:"url" validate:"omitnil,min=1" blank:"refused"`
	Description *string   `json:"description" validate:"omitnil,min=1,max=200,line"`
	Types       *[]string `json:"types" validate:"omitnil,max=50"`
}

type webhookAnswer struct {
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

type webhookList struct {
	Webhooks []webhookAnswer `json:"webhooks"`
}

func newWebhookService(p Params, slots fairStore, checks *rules.Rules) (*webhookService, error) {
	creates, err := strictjson.NewReader[createWebhookRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare new webhooks: %w", err)
	}
	changes, err := strictjson.NewReader[changeWebhookRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare changes of webhooks: %w", err)
	}
	replays, err := strictjson.NewReader[replayWebhookRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare replays of webhooks: %w", err)
	}
	return &webhookService{
		store: p.Webhooks, slots: slots, rules: checks, ring: p.Ring, private: p.WebhookAllowPrivate,
		creates: creates, changes: changes, replays: replays,
	}, nil
}

func (a *API) routeWebhooks(r *gin.Engine, w *webhookService) {
	read := r.Group("/v1/webhooks", a.answer(a.authenticate), a.answer(scope(apikey.WebhooksRead)))
	read.GET("", a.answer(w.list))
	read.GET("/:id", a.answer(w.show))
	read.GET("/:id/deliveries", a.answer(w.listDeliveries))
	read.GET("/:id/deliveries/:delivery", a.answer(w.showDelivery))
	read.GET("/:id/replays/:replay", a.answer(w.showReplay))

	write := r.Group("/v1/webhooks", a.answer(a.authenticate), a.answer(scope(apikey.WebhooksWrite)))
	write.POST("", a.answer(a.bodies.limit), a.answer(w.create))
	write.PATCH("/:id", a.answer(a.bodies.limit), a.answer(w.change))
	write.DELETE("/:id", a.answer(w.remove))
	write.POST("/:id/rotate-secret", a.answer(w.rotate))
	write.POST("/:id/enable", a.answer(w.enable))
	write.POST("/:id/disable", a.answer(w.disable))
	write.POST("/:id/test", a.answer(w.test))
	write.POST("/:id/deliveries/:delivery/retry", a.answer(w.retryDelivery))
	write.POST("/:id/replays", a.answer(a.bodies.limit), a.answer(w.replay))
}

// create creates an endpoint. The response is the only one that shows its secret.
func (w *webhookService) create(c *gin.Context) error {
	document, err := readJSON(c)
	if err != nil {
		return err
	}
	request, found := w.creates.Read(document)
	wrong := w.rules.Check(&request, found)
	w.checkURL(request.URL, &wrong)
	checkTypes(request.Types, &wrong)
	if len(wrong) > 0 {
		return invalid(wrong)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make webhook id: %w", err)
	}
	company := visitOf(c).caller.CompanyID
	text, encrypted, err := w.newSecret(company)
	if err != nil {
		return err
	}
	err = w.do(c, func(ctx context.Context) error {
		return w.store.Create(ctx, webhook.Endpoint{
			ID: id, CompanyID: company, URL: request.URL, Description: request.Description, Types: request.Types, Secret: encrypted,
		})
	})
	if err != nil {
		return err
	}
	c.Header("Location", "/v1/webhooks/"+id.String())
	return w.answer(c, http.StatusCreated, id, text)
}

func (w *webhookService) list(c *gin.Context) error {
	found, err := inPlace(c.Request.Context(), w.slots, companyOf(c), func() ([]webhook.Endpoint, error) {
		return w.store.List(c.Request.Context(), companyOf(c))
	})
	if err != nil {
		return err
	}
	answer := webhookList{Webhooks: make([]webhookAnswer, len(found))}
	for i, e := range found {
		answer.Webhooks[i] = webhookOf(e)
	}
	c.JSON(http.StatusOK, answer)
	return nil
}

func (w *webhookService) show(c *gin.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	return w.answer(c, http.StatusOK, id, "")
}

// change sets the given fields.
func (w *webhookService) change(c *gin.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	document, err := readJSON(c)
	if err != nil {
		return err
	}
	request, found := w.changes.Read(document)
	wrong := w.rules.Check(&request, found)
	if request.URL != nil {
		w.checkURL(*request.URL, &wrong)
	}
	if request.Types != nil {
		checkTypes(*request.Types, &wrong)
	}
	if len(wrong) > 0 {
		return invalid(wrong)
	}
	change := webhook.Change{URL: request.URL, Description: request.Description, Types: request.Types}
	return w.step(c, id, func(ctx context.Context, company uuid.UUID) error { return w.store.Update(ctx, company, id, change) })
}

func (w *webhookService) remove(c *gin.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	if err := w.do(c, func(ctx context.Context) error { return w.store.Delete(ctx, companyOf(c), id) }); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}

// rotate creates a new secret. The old one signs too for standardwebhook.RotationTime.
func (w *webhookService) rotate(c *gin.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	text, encrypted, err := w.newSecret(companyOf(c))
	if err != nil {
		return err
	}
	err = w.do(c, func(ctx context.Context) error {
		return w.store.Rotate(ctx, companyOf(c), id, encrypted, standardwebhook.RotationTime)
	})
	if err != nil {
		return err
	}
	return w.answer(c, http.StatusOK, id, text)
}

func (w *webhookService) enable(c *gin.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	return w.step(c, id, func(ctx context.Context, company uuid.UUID) error { return w.store.Enable(ctx, company, id) })
}

func (w *webhookService) disable(c *gin.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	return w.step(c, id, func(ctx context.Context, company uuid.UUID) error { return w.store.Disable(ctx, company, id) })
}

// step changes an endpoint and responds with it.
func (w *webhookService) step(c *gin.Context, id uuid.UUID, do func(ctx context.Context, company uuid.UUID) error) error {
	if err := w.do(c, func(ctx context.Context) error { return do(ctx, companyOf(c)) }); err != nil {
		return err
	}
	return w.answer(c, http.StatusOK, id, "")
}

// do runs a statement in a slot of the company.
func (w *webhookService) do(c *gin.Context, statement func(ctx context.Context) error) error {
	ctx := c.Request.Context()
	return webhookError(w.slots.doInPlace(ctx, companyOf(c), func() error { return statement(ctx) }))
}

// answer responds with the endpoint. secret is "" unless it was created by this request.
func (w *webhookService) answer(c *gin.Context, status int, id uuid.UUID, secret string) error {
	ctx := c.Request.Context()
	found, err := inPlace(ctx, w.slots, companyOf(c), func() (webhook.Endpoint, error) { return w.store.Find(ctx, companyOf(c), id) })
	if err != nil {
		return webhookError(err)
	}
	answer := webhookOf(found)
	answer.Secret = secret
	c.JSON(status, answer)
	return nil
}

// newSecret returns a secret as text and encrypted.
func (w *webhookService) newSecret(company uuid.UUID) (text string, encrypted []byte, err error) {
	secret, err := standardwebhook.NewSecret()
	if err != nil {
		return "", nil, err
	}
	if encrypted, err = w.ring.Seal(company, secret.Text()); err != nil {
		return "", nil, fmt.Errorf("encrypt webhook secret: %w", err)
	}
	return secret.Text(), encrypted, nil
}

func (w *webhookService) checkURL(text string, wrong *rules.Faults) {
	if wrong.Has("url") {
		return
	}
	if err := standardwebhook.CheckURL(text, w.private); err != nil {
		wrong.Add("url", "INVALID_URL", err.Error())
	}
}

func checkTypes(entries []string, wrong *rules.Faults) {
	for i, entry := range entries {
		if err := standardwebhook.CheckType(entry, webhook.Types()); err != nil {
			wrong.Add("types["+strconv.Itoa(i)+"]", "INVALID_EVENT_TYPE", err.Error())
		}
	}
}

func webhookOf(e webhook.Endpoint) webhookAnswer {
	return webhookAnswer{
		ID: e.ID, URL: e.URL, Description: e.Description, Types: append([]string{}, e.Types...), Status: e.Status,
		DisabledReason: e.DisabledReason, DisabledAt: inUTC(e.DisabledAt), Health: e.Health(), Failures: e.Failures, FailingSince: inUTC(e.FailingSince),
		LastSuccessAt: inUTC(e.LastSuccessAt), LastFailureAt: inUTC(e.LastFailureAt), LastError: e.LastError, Open: e.Open,
		OldSecretUntil: inUTC(e.OldSecretUntil), CreatedAt: e.CreatedAt.UTC(), UpdatedAt: e.UpdatedAt.UTC(),
	}
}

func companyOf(c *gin.Context) uuid.UUID { return visitOf(c).caller.CompanyID }

func webhookID(c *gin.Context) (uuid.UUID, error) {
	id, err := rules.ParseID(c.Param("id"))
	if err != nil {
		return uuid.Nil, noSuchWebhook
	}
	return id, nil
}

// webhookError maps the errors of the store.
func webhookError(err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchWebhook
	case errors.Is(err, webhook.ErrTooManyEndpoints):
		return tooManyWebhooks
	case errors.Is(err, webhook.ErrTooManyReplays):
		return tooManyWebhookReplays
	case errors.Is(err, webhook.ErrDisabledByOperator):
		return webhookDisabledByUs
	case errors.Is(err, webhook.ErrDisabled):
		return webhookDisabled
	}
	return err
}
