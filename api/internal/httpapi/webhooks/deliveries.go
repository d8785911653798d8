package webhooks

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/store/webhook"
	"email-gateway/shared/uuidv7"
)

type deliveryAnswer struct {
	ID            uuid.UUID              `json:"id"`
	EventID       string                 `json:"eventId"`
	Type          string                 `json:"type"`
	OutboxID      *uuid.UUID             `json:"outboxId,omitempty"`
	Status        webhook.DeliveryStatus `json:"status"`
	Attempts      int                    `json:"attempts"`
	NextAttemptAt *time.Time             `json:"nextAttemptAt,omitempty"`
	LastAttemptAt *time.Time             `json:"lastAttemptAt,omitempty"`
	LastStatus    *int                   `json:"lastStatus,omitempty"`
	LastError     *string                `json:"lastError,omitempty"`
	LastTookMS    *int                   `json:"lastDurationMs,omitempty"`
	CreatedAt     time.Time              `json:"createdAt"`
}

type deliveryPage struct {
	Deliveries []deliveryAnswer `json:"deliveries"`
	NextCursor string           `json:"nextCursor,omitempty"`
}

// ListDeliveries lists the stored deliveries, newest first.
func (h *Handlers) ListDeliveries(c *gin.Context) error {
	id, err := endpointID(c)
	if err != nil {
		return err
	}
	q, err := query.Open(c.Request, h.rules)
	if err != nil {
		return err
	}
	filter := webhook.DeliveryFilter{
		Status: webhook.DeliveryStatus(q.Text("status", "oneof=RETRYING WAITING DELIVERED FAILED")),
		Before: q.Cursor("cursor"), Limit: q.Limit("limit"),
	}
	if err := q.Close(); err != nil {
		return err
	}
	found, err := run(c, h, func(ctx context.Context) ([]webhook.Delivery, error) {
		if _, err := h.store.Find(ctx, reqctx.CompanyOf(c), id); err != nil {
			return nil, err
		}
		return h.store.Deliveries(ctx, reqctx.CompanyOf(c), id, filter)
	})
	if err != nil {
		return problemOf(err)
	}
	page := deliveryPage{Deliveries: make([]deliveryAnswer, len(found))}
	for i, d := range found {
		page.Deliveries[i] = deliveryOf(d)
	}
	if len(found) == filter.Limit {
		if page.NextCursor, err = q.CursorTo(found[len(found)-1].ID); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, page)
	return nil
}

// ShowDelivery shows a stored delivery.
func (h *Handlers) ShowDelivery(c *gin.Context) error {
	return h.stepDelivery(c, http.StatusOK, h.store.FindDelivery)
}

// RetryDelivery makes a delivery due now with all its attempts.
func (h *Handlers) RetryDelivery(c *gin.Context) error {
	return h.stepDelivery(c, http.StatusAccepted, h.store.RetryDelivery)
}

// stepDelivery finds or changes a delivery and responds with it.
func (h *Handlers) stepDelivery(c *gin.Context, status int, do func(ctx context.Context, company, endpoint, id uuid.UUID) (webhook.Delivery, error)) error {
	endpoint, id, err := deliveryID(c)
	if err != nil {
		return err
	}
	d, err := run(c, h, func(ctx context.Context) (webhook.Delivery, error) { return do(ctx, reqctx.CompanyOf(c), endpoint, id) })
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchDelivery
	case err != nil:
		return problemOf(err)
	}
	c.JSON(status, deliveryOf(d))
	return nil
}

// Test creates a delivery of a test event. The worker makes its only attempt.
func (h *Handlers) Test(c *gin.Context) error {
	id, err := endpointID(c)
	if err != nil {
		return err
	}
	delivery := uuidv7.New()
	made, err := run(c, h, func(ctx context.Context) (webhook.Delivery, error) {
		return h.store.CreateTest(ctx, reqctx.CompanyOf(c), id, delivery)
	})
	if err != nil {
		return problemOf(err)
	}
	c.Header("Location", "/v1/webhooks/"+id.String()+"/deliveries/"+delivery.String())
	c.JSON(http.StatusAccepted, deliveryOf(made))
	return nil
}

func deliveryID(c *gin.Context) (endpoint, delivery uuid.UUID, err error) {
	if endpoint, err = endpointID(c); err != nil {
		return uuid.Nil, uuid.Nil, err
	}
	if delivery, err = rules.ParseID(c.Param("delivery")); err != nil {
		return uuid.Nil, uuid.Nil, noSuchDelivery
	}
	return endpoint, delivery, nil
}

func deliveryOf(d webhook.Delivery) deliveryAnswer {
	if !webhook.IsOfEmail(d.Type) {
		d.EmailID = nil
	}
	return deliveryAnswer{
		ID: d.ID, EventID: d.EventID, Type: d.Type, OutboxID: d.EmailID, Status: d.Status, Attempts: d.Attempts, NextAttemptAt: response.InUTC(d.NextAt),
		LastAttemptAt: response.InUTC(d.LastAttemptAt), LastStatus: d.LastStatus, LastError: d.LastError, LastTookMS: d.LastTookMS, CreatedAt: d.CreatedAt.UTC(),
	}
}
