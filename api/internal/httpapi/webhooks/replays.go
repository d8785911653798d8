package webhooks

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/store/webhook"
	"email-gateway/shared/uuidv7"
)

// replayRequest is the body of POST /v1/webhooks/{id}/replays: failed, or a range of time.
type replayRequest struct {
	Failed *bool   `json:"failed"`
	Since  *string `json:"since" validate:"omitnil,timestamp" blank:"refused"`
	Until  *string `json:"until" validate:"omitnil,timestamp" blank:"refused"`
}

type replayAnswer struct {
	ReplayID   uuid.UUID            `json:"replayId"`
	Status     webhook.ReplayStatus `json:"status"`
	Failed     bool                 `json:"failed"`
	Since      *time.Time           `json:"since,omitempty"`
	Until      *time.Time           `json:"until,omitempty"`
	Done       int                  `json:"done"`
	CreatedAt  time.Time            `json:"createdAt"`
	FinishedAt *time.Time           `json:"finishedAt,omitempty"`
}

// Replay stores a request to deliver events again. The worker processes it.
func (h *Handlers) Replay(c *gin.Context) error {
	endpoint, err := endpointID(c)
	if err != nil {
		return err
	}
	document, err := reqbody.ReadJSON(c)
	if err != nil {
		return err
	}
	request, found := h.replays.Read(document)
	faults := h.rules.Check(&request, found)
	since, until := replayRange(request, &faults)
	if len(faults) > 0 {
		return problem.Invalid(faults)
	}
	id := uuidv7.New()
	made, err := run(c, h, func(ctx context.Context) (webhook.Replay, error) {
		return h.store.CreateReplay(ctx, webhook.Replay{ID: id, EndpointID: endpoint, CompanyID: reqctx.CompanyOf(c), Since: since, Until: until})
	})
	if err != nil {
		return problemOf(err)
	}
	c.Header("Location", "/v1/webhooks/"+endpoint.String()+"/replays/"+id.String())
	answerReplay(c, http.StatusAccepted, made)
	return nil
}

// replayRange checks that the request has either failed or a range of time.
func replayRange(r replayRequest, faults *rules.Faults) (since, until *time.Time) {
	moment := func(field string, text *string) *time.Time {
		if text == nil {
			return nil
		}
		t, err := rules.ParseTime(*text)
		if err != nil {
			return nil // reported by the rule
		}
		if !query.WithinReason(t) {
			faults.Add(field, "OUT_OF_RANGE", query.ReasonableTimes)
		}
		return &t
	}
	since, until = moment("since", r.Since), moment("until", r.Until)
	failed := r.Failed != nil && *r.Failed
	switch {
	case failed && r.Since != nil:
		faults.Add("since", "NOT_ALLOWED", "must not be given with failed")
	case failed && r.Until != nil:
		faults.Add("until", "NOT_ALLOWED", "must not be given with failed")
	case failed:
		return nil, nil
	case r.Since == nil && !faults.Has("since"):
		faults.Add("since", rules.CodeRequired, "is required, unless failed is true")
	case since != nil && until == nil && r.Until == nil:
		now := time.Now()
		until = &now
	}
	if since != nil && until != nil && !until.After(*since) {
		faults.Add("until", "OUT_OF_RANGE", "must be after since")
	}
	return since, until
}

// ShowReplay shows the progress of a request to deliver events again.
func (h *Handlers) ShowReplay(c *gin.Context) error {
	endpoint, err := endpointID(c)
	if err != nil {
		return err
	}
	id, err := rules.ParseID(c.Param("replay"))
	if err != nil {
		return noSuchReplay
	}
	found, err := run(c, h, func(ctx context.Context) (webhook.Replay, error) {
		return h.store.FindReplay(ctx, reqctx.CompanyOf(c), endpoint, id)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchReplay
	case err != nil:
		return err
	}
	answerReplay(c, http.StatusOK, found)
	return nil
}

func answerReplay(c *gin.Context, status int, r webhook.Replay) {
	c.JSON(status, replayAnswer{
		ReplayID: r.ID, Status: r.Status, Failed: r.Since == nil, Since: response.InUTC(r.Since), Until: response.InUTC(r.Until), Done: r.Done,
		CreatedAt: r.CreatedAt.UTC(), FinishedAt: response.InUTC(r.FinishedAt),
	})
}
