package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/store/webhook"
)

type webhookDeliveryAnswer struct {
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

type webhookDeliveryPage struct {
	Deliveries []webhookDeliveryAnswer `json:"deliveries"`
	NextCursor string                  `json:"nextCursor,omitempty"`
}

// replayWebhookRequest is the body of POST /v1/webhooks/{id}/replays: failed, or a range of time.
type replayWebhookRequest struct {
	Failed *bool   `json:"failed"`
	Since  *string `json:"since" validate:"omitnil,timestamp" blank:"refused"`
	Until  *string `json:"until" validate:"omitnil,timestamp" blank:"refused"`
}

type webhookReplayAnswer struct {
	ReplayID   uuid.UUID            `json:"replayId"`
	Status     webhook.ReplayStatus `json:"status"`
	Failed     bool                 `json:"failed"`
	Since      *time.Time           `json:"since,omitempty"`
	Until      *time.Time           `json:"until,omitempty"`
	Done       int                  `json:"done"`
	CreatedAt  time.Time            `json:"createdAt"`
	FinishedAt *time.Time           `json:"finishedAt,omitempty"`
}

// listDeliveries lists the stored deliveries, newest first.
func (w *webhookService) listDeliveries(c *gin.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	q, err := openQuery(c.Request.URL.RawQuery, w.rules)
	if err != nil {
		return err
	}
	filter := webhook.DeliveryFilter{
		Status: webhook.DeliveryStatus(q.text("status", "oneof=RETRYING WAITING DELIVERED FAILED")),
		Before: q.cursor("cursor"), Limit: q.limit("limit"),
	}
	if err := q.close(); err != nil {
		return err
	}
	ctx := c.Request.Context()
	found, err := inPlace(ctx, w.slots, companyOf(c), func() ([]webhook.Delivery, error) {
		if _, err := w.store.Find(ctx, companyOf(c), id); err != nil {
			return nil, err
		}
		return w.store.Deliveries(ctx, companyOf(c), id, filter)
	})
	if err != nil {
		return webhookError(err)
	}
	page := webhookDeliveryPage{Deliveries: make([]webhookDeliveryAnswer, len(found))}
	for i, d := range found {
		page.Deliveries[i] = webhookDeliveryOf(d)
	}
	if len(found) == filter.Limit {
		page.NextCursor = cursorTo(found[len(found)-1].ID)
	}
	c.JSON(http.StatusOK, page)
	return nil
}

func (w *webhookService) showDelivery(c *gin.Context) error {
	id, delivery, err := deliveryID(c)
	if err != nil {
		return err
	}
	return w.answerDelivery(c, http.StatusOK, id, delivery)
}

// retryDelivery makes a delivery due now with all its attempts.
func (w *webhookService) retryDelivery(c *gin.Context) error {
	id, delivery, err := deliveryID(c)
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	err = w.slots.doInPlace(ctx, companyOf(c), func() error { return w.store.RetryDelivery(ctx, companyOf(c), id, delivery) })
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchWebhookDelivery
	case err != nil:
		return webhookError(err)
	}
	return w.answerDelivery(c, http.StatusAccepted, id, delivery)
}

// test creates a delivery of a test event. The worker makes its only attempt.
func (w *webhookService) test(c *gin.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	delivery, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make delivery id: %w", err)
	}
	if err := w.do(c, func(ctx context.Context) error { return w.store.CreateTest(ctx, companyOf(c), id, delivery) }); err != nil {
		return err
	}
	c.Header("Location", "/v1/webhooks/"+id.String()+"/deliveries/"+delivery.String())
	return w.answerDelivery(c, http.StatusAccepted, id, delivery)
}

func (w *webhookService) answerDelivery(c *gin.Context, status int, endpoint, delivery uuid.UUID) error {
	ctx := c.Request.Context()
	found, err := inPlace(ctx, w.slots, companyOf(c), func() (webhook.Delivery, error) {
		return w.store.FindDelivery(ctx, companyOf(c), endpoint, delivery)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchWebhookDelivery
	case err != nil:
		return err
	}
	c.JSON(status, webhookDeliveryOf(found))
	return nil
}

// replay stores a request to deliver events again. The worker processes it.
func (w *webhookService) replay(c *gin.Context) error {
	endpoint, err := webhookID(c)
	if err != nil {
		return err
	}
	document, err := readJSON(c)
	if err != nil {
		return err
	}
	request, found := w.replays.Read(document)
	wrong := w.rules.Check(&request, found)
	since, until := replayRange(request, &wrong)
	if len(wrong) > 0 {
		return invalid(wrong)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make replay id: %w", err)
	}
	err = w.do(c, func(ctx context.Context) error {
		return w.store.CreateReplay(ctx, webhook.Replay{ID: id, EndpointID: endpoint, CompanyID: companyOf(c), Since: since, Until: until})
	})
	if err != nil {
		return err
	}
	c.Header("Location", "/v1/webhooks/"+endpoint.String()+"/replays/"+id.String())
	return w.answerReplay(c, http.StatusAccepted, endpoint, id)
}

// replayRange checks that the request has either failed or a range of time.
func replayRange(r replayWebhookRequest, wrong *rules.Faults) (since, until *time.Time) {
	moment := func(field string, text *string) *time.Time {
		if text == nil {
			return nil
		}
		t, err := rules.ParseTime(*text)
		if err != nil {
			return nil // reported by the rule
		}
		if !withinReason(t) {
			wrong.Add(field, "OUT_OF_RANGE", reasonableTimes)
		}
		return &t
	}
	since, until = moment("since", r.Since), moment("until", r.Until)
	failed := r.Failed != nil && *r.Failed
	switch {
	case failed && r.Since != nil:
		wrong.Add("since", "NOT_ALLOWED", "must not be given with failed")
	case failed && r.Until != nil:
		wrong.Add("until", "NOT_ALLOWED", "must not be given with failed")
	case failed:
		return nil, nil
	case r.Since == nil && !wrong.Has("since"):
		wrong.Add("since", rules.CodeRequired, "is required, unless failed is true")
	case since != nil && until == nil && r.Until == nil:
		now := time.Now()
		until = &now
	}
	if since != nil && until != nil && !until.After(*since) {
		wrong.Add("until", "OUT_OF_RANGE", "must be after since")
	}
	return since, until
}

func (w *webhookService) showReplay(c *gin.Context) error {
	endpoint, err := webhookID(c)
	if err != nil {
		return err
	}
	id, err := rules.ParseID(c.Param("replay"))
	if err != nil {
		return noSuchWebhookReplay
	}
	return w.answerReplay(c, http.StatusOK, endpoint, id)
}

func (w *webhookService) answerReplay(c *gin.Context, status int, endpoint, id uuid.UUID) error {
	ctx := c.Request.Context()
	r, err := inPlace(ctx, w.slots, companyOf(c), func() (webhook.Replay, error) {
		return w.store.FindReplay(ctx, companyOf(c), endpoint, id)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchWebhookReplay
	case err != nil:
		return err
	}
	c.JSON(status, webhookReplayAnswer{
		ReplayID: r.ID, Status: r.Status, Failed: r.Since == nil, Since: inUTC(r.Since), Until: inUTC(r.Until), Done: r.Done,
		CreatedAt: r.CreatedAt.UTC(), FinishedAt: inUTC(r.FinishedAt),
	})
	return nil
}

func deliveryID(c *gin.Context) (endpoint, delivery uuid.UUID, err error) {
	if endpoint, err = webhookID(c); err != nil {
		return uuid.Nil, uuid.Nil, err
	}
	if delivery, err = rules.ParseID(c.Param("delivery")); err != nil {
		return uuid.Nil, uuid.Nil, noSuchWebhookDelivery
	}
	return endpoint, delivery, nil
}

func webhookDeliveryOf(d webhook.Delivery) webhookDeliveryAnswer {
	if !webhook.IsOfEmail(d.Type) {
		d.EmailID = nil
	}
	return webhookDeliveryAnswer{
		ID: d.ID, EventID: d.EventID, Type: d.Type, OutboxID: d.EmailID, Status: d.Status, Attempts: d.Attempts, NextAttemptAt: inUTC(d.NextAt),
		LastAttemptAt: inUTC(d.LastAttemptAt), LastStatus: d.LastStatus, LastError: d.LastError, LastTookMS: d.LastTookMS, CreatedAt: d.CreatedAt.UTC(),
	}
}
