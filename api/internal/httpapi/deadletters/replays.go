package deadletters

import (
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/uuidv7"
)

// replayRequest is the body of POST /v1/dead-letters/retry and /discard: the filter, the
// limit and the rate.
type replayRequest struct {
	Reason        *string `json:"reason" validate:"omitnil,min=1,max=64,printable" blank:"refused"`
	Target        *string `json:"target" validate:"omitnil,oneof=email:send mailing.process recipients.upsert" blank:"refused"`
	MailingID     *string `json:"mailingId" validate:"omitnil,id" blank:"refused"`
	Recipient     *string `json:"recipient" validate:"omitnil,address" blank:"refused"`
	CreatedAfter  *string `json:"createdAfter" validate:"omitnil,timestamp" blank:"refused"`
	CreatedBefore *string `json:"createdBefore" validate:"omitnil,timestamp" blank:"refused"`
	Limit         *int    `json:"limit" validate:"omitnil,min=1,max=1000000"`
	Rate          *int    `json:"rate" validate:"omitnil,min=1,max=1000"`
	Note          *string `json:"note" validate:"omitnil,min=1,max=200,line"`
}

// defaultReplayRate is used if a request has none (emails per second): a rate that a provider
// account usually allows.
const defaultReplayRate = 100

// ReplayPath is the path of replays.
const ReplayPath = "/v1/dead-letter-replays/"

type replayAnswer struct {
	ReplayID   string                  `json:"replayId"`
	Action     deadletter.ReplayAction `json:"action"`
	Status     deadletter.ReplayStatus `json:"status"`
	Filter     deadletter.LetterFilter `json:"filter"`
	Limit      *int                    `json:"limit,omitempty"`
	Rate       int                     `json:"rate"`
	Note       *string                 `json:"note,omitempty"`
	Matched    int                     `json:"matched"`
	Done       int                     `json:"done"`
	Skipped    int                     `json:"skipped"`
	Failed     int                     `json:"failed"`
	CreatedAt  time.Time               `json:"createdAt"`
	FinishedAt *time.Time              `json:"finishedAt,omitempty"`
}

// RetryAll retries all open dead letters that match the filter in the body.
func (h *Handlers) RetryAll(c *gin.Context) error {
	return h.replay(c, deadletter.ReplayRetry)
}

// DiscardAll discards all open dead letters that match the filter in the body.
func (h *Handlers) DiscardAll(c *gin.Context) error {
	return h.replay(c, deadletter.ReplayDiscard)
}

// replay stores a request to retry or discard all matching open dead letters; the
// dispatcher processes it.
func (h *Handlers) replay(c *gin.Context, action deadletter.ReplayAction) error {
	document, err := reqbody.ReadJSON(c)
	if err != nil {
		return err
	}
	request, found := h.replays.Read(document)
	faults := h.rules.Check(&request, found)
	filter := filterOf(request, &faults)
	if len(faults) > 0 {
		return problem.Invalid(faults)
	}
	if action == deadletter.ReplayRetry && filter.Target != "" && filter.Target != email.TargetSend && !h.hasRabbitMQ {
		return problem.BulkDisabled
	}
	id := uuidv7.New()
	v := reqctx.StateOf(c)
	made, err := h.store.CreateReplay(c.Request.Context(), deadletter.NewReplay{
		ID: id, CompanyID: &v.Caller.CompanyID, Action: action, Filter: filter, Actor: actorOf(v), RequestID: v.RequestID,
		Note: strictjson.Or(request.Note, ""), Most: strictjson.Or(request.Limit, 0), Rate: strictjson.Or(request.Rate, defaultReplayRate),
	})
	switch {
	case errors.Is(err, deadletter.ErrTooManyReplays):
		return tooManyReplays
	case err != nil:
		return err
	}
	c.Header("Location", ReplayPath+made.ID.String())
	c.JSON(http.StatusAccepted, replayOf(made))
	return nil
}

// filterOf builds the filter of a validated request; invalid fields are left out.
func filterOf(r replayRequest, faults *rules.Faults) deadletter.LetterFilter {
	f := deadletter.LetterFilter{Reason: strictjson.Or(r.Reason, ""), Target: strictjson.Or(r.Target, "")}
	if r.MailingID != nil {
		if id, err := rules.ParseID(*r.MailingID); err == nil {
			f.MailingID = &id
		}
	}
	if r.Recipient != nil {
		if ascii, err := mailbox.ASCII(*r.Recipient); err == nil {
			f.Recipient = ascii
		}
	}
	moment := func(field string, text *string) *time.Time {
		if text == nil {
			return nil
		}
		t, err := rules.ParseTime(*text)
		if err == nil && !query.WithinReason(t) {
			faults.Add(field, "OUT_OF_RANGE", query.ReasonableTimes)
		}
		return &t
	}
	f.CreatedAfter, f.CreatedBefore = moment("createdAfter", r.CreatedAfter), moment("createdBefore", r.CreatedBefore)
	return f
}

// ShowReplay shows the progress of a request to retry or discard dead letters.
func (h *Handlers) ShowReplay(c *gin.Context) error {
	id, err := rules.ParseID(c.Param("id"))
	if err != nil {
		return noSuchReplay
	}
	found, err := h.store.FindReplay(c.Request.Context(), reqctx.CompanyOf(c), id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchReplay
	case err != nil:
		return err
	}
	c.JSON(http.StatusOK, replayOf(found))
	return nil
}

func replayOf(r deadletter.Replay) replayAnswer {
	return replayAnswer{
		ReplayID: r.ID.String(), Action: r.Action, Status: r.Status, Filter: r.Filter, Limit: r.Most, Rate: r.Rate, Note: r.Note,
		Matched: r.Matched, Done: r.Done, Skipped: r.Skipped, Failed: r.Failed, CreatedAt: r.CreatedAt.UTC(), FinishedAt: response.InUTC(r.FinishedAt),
	}
}
