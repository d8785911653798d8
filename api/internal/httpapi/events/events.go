package events

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/event"
)

// longestWait limits how long a request for events waits for the next one.
const longestWait = 30

// latestEvents as the cursor means that only events from now on are wanted.
const latestEvents = "latest"

// listPage is the response of GET /v1/events.
type listPage struct {
	Events     []feedEvent `json:"events"`
	NextCursor string      `json:"nextCursor"`
	HasMore    bool        `json:"hasMore"`
	// OldestCursor is the oldest cursor that is still valid.
	OldestCursor string `json:"oldestCursor"`
}

// feedEvent is an event in the feed. One of the company itself has no email.
type feedEvent struct {
	ID        string          `json:"id"`
	Type      email.EventType `json:"type"`
	CreatedAt time.Time       `json:"createdAt"`
	*emailOfEvent
	Metadata json.RawMessage `json:"metadata"`
}

// emailOfEvent is what an event shows of its email.
type emailOfEvent struct {
	OutboxID   uuid.UUID           `json:"outboxId"`
	Seq        int                 `json:"seq"`
	RequestID  string              `json:"requestId"`
	To         string              `json:"to"`
	ExternalID *string             `json:"externalId,omitempty"`
	Tags       []string            `json:"tags"`
	Aggregate  *response.Aggregate `json:"aggregate,omitempty"`
	MailingID  *uuid.UUID          `json:"mailingId,omitempty"`
}

// eventRequest is the query of GET /v1/events.
type eventRequest struct {
	after  event.Cursor
	latest bool
	types  []email.EventType
	limit  int
	wait   time.Duration
}

// List handles GET /v1/events. If there is no event behind the cursor, it waits for one as long as the request asks.
func (h *Handlers) List(c *gin.Context) error {
	r, err := readRequest(c.Request, h.rules)
	if err != nil {
		return err
	}
	ctx, company := c.Request.Context(), reqctx.CompanyOf(c)
	if r.latest {
		r.limit, r.wait = 1, 0
	}
	waiting, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	for {
		page, err := h.read(ctx, company, r)
		if err != nil {
			return err
		}
		if len(page.Events) > 0 || page.More || !h.polls.wait(waiting, company, page.Next) {
			c.JSON(http.StatusOK, pageOfEvents(page))
			return nil
		}
		if err := h.stillValid(c); err != nil {
			return err
		}
		r.after = page.Next
	}
}

// read reads a page with a slot of the company.
func (h *Handlers) read(ctx context.Context, company uuid.UUID, r eventRequest) (event.Page, error) {
	page, err := slots.Run(ctx, h.slots, company, func() (event.Page, error) {
		return h.feed.Read(ctx, company, r.after, event.OfTypes(r.types), r.limit)
	})
	switch {
	case errors.Is(err, event.ErrExpired):
		return page, cursorExpired(page.Oldest.String())
	case errors.Is(err, event.ErrNewHistory):
		return page, newHistory()
	case r.latest:
		page.Events, page.Next, page.More = nil, page.Newest, false
	}
	return page, err
}

// cursorExpired is a cursor behind which events may be missing.
func cursorExpired(oldest string) problem.Problem {
	return problem.Problem{
		Status: http.StatusGone, Code: "CURSOR_EXPIRED", OldestCursor: oldest,
		Detail: "the cursor is older than the oldest stored event (events are kept for 30 days), or none that this API has returned: continue with oldestCursor, or without a cursor, and skip events whose id you have processed",
	}
}

// newHistory is a cursor that is valid when a dispatcher has run, which takes some seconds after it can connect to the restored
// database, or the promoted standby.
func newHistory() problem.Problem {
	return problem.Problem{
		Status: http.StatusServiceUnavailable, Code: "EVENTS_UNAVAILABLE", RetryAfter: 5 * time.Second,
		Detail: "the cursor is newer than the database, which was restored or replaced by a standby: it is valid again when a dispatcher has run; repeat the request after Retry-After",
	}
}

func pageOfEvents(page event.Page) listPage {
	answer := listPage{
		Events: make([]feedEvent, len(page.Events)), NextCursor: page.Next.String(), HasMore: page.More, OldestCursor: page.Oldest.String(),
	}
	for i, e := range page.Events {
		answer.Events[i] = feedEventOf(e)
	}
	return answer
}

func feedEventOf(e event.Event) feedEvent {
	shown := feedEvent{ID: e.ID(), Type: e.Type, CreatedAt: e.CreatedAt.UTC(), Metadata: e.Metadata}
	if len(shown.Metadata) == 0 || string(shown.Metadata) == "null" {
		shown.Metadata = json.RawMessage("{}")
	}
	if e.OfCompany {
		return shown
	}
	shown.emailOfEvent = &emailOfEvent{
		OutboxID: e.EmailID, Seq: e.Seq, RequestID: e.RequestID, To: e.Recipient, ExternalID: e.ExternalID,
		Tags: append([]string{}, e.Tags...), MailingID: e.MailingID,
	}
	if e.AggregateType != nil {
		shown.Aggregate = &response.Aggregate{Type: *e.AggregateType, ID: strictjson.Or(e.AggregateID, ""), EventType: strictjson.Or(e.EventType, "")}
	}
	return shown
}

func readRequest(from *http.Request, checks *rules.Rules) (eventRequest, error) {
	q, err := query.Open(from, checks)
	if err != nil {
		return eventRequest{}, err
	}
	r := eventRequest{
		types: eventTypes(q, "types"), limit: q.Limit("limit"),
		wait: time.Duration(q.Number("wait", 0, 0, longestWait)) * time.Second,
	}
	if after, given := q.Get("after"); given && after == latestEvents {
		r.latest = true
	} else if given {
		if r.after, err = event.ParseCursor(after); err != nil {
			q.Faults.Add("after", "INVALID_CURSOR", `must be the nextCursor of a page of events, or "latest"`)
		}
	}
	return r, q.Close()
}

// eventTypes reads a list of event types separated by commas; nil means all types.
func eventTypes(q *query.Query, name string) []email.EventType {
	value, given := q.Get(name)
	if !given {
		return nil
	}
	var types []email.EventType
	for text := range strings.SplitSeq(value, ",") {
		kind := email.EventType(strings.TrimSpace(text))
		if !slices.Contains(event.Types(), kind) {
			q.Faults.Add(name, "NOT_ALLOWED", "has an unknown event type: "+problem.PrintableName(string(kind)))
			return nil
		}
		types = append(types, kind)
	}
	return types
}
