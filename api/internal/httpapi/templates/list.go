package templates

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqctx"
	templatestore "email-gateway/shared/store/template"
)

// summary is a template in one locale.
type summary struct {
	Name             string    `json:"name"`
	Locale           string    `json:"locale,omitempty"`
	LatestVersion    int       `json:"latestVersion"`
	PublishedVersion *int      `json:"publishedVersion,omitempty"`
	UpdatedAt        time.Time `json:"updatedAt"`
}

type listPage struct {
	Templates  []summary `json:"templates"`
	NextCursor string    `json:"nextCursor,omitempty"`
}

func summariesOf(found []templatestore.Summary) []summary {
	all := make([]summary, len(found))
	for i, s := range found {
		all[i] = summary{Name: s.Name, Locale: s.Locale, LatestVersion: s.Latest, PublishedVersion: s.Published, UpdatedAt: s.UpdatedAt.UTC()}
	}
	return all
}

// List handles GET /v1/templates.
func (h *Handlers) List(c *gin.Context) error {
	q, err := query.Open(c.Request, h.rules)
	if err != nil {
		return err
	}
	limit := q.Limit("limit")
	var after templatestore.ID
	q.CursorInto("cursor", &after)
	if err := q.Close(); err != nil {
		return err
	}
	found, err := h.store.List(c.Request.Context(), reqctx.CompanyOf(c), after, "", limit)
	if err != nil {
		return err
	}
	page := listPage{Templates: summariesOf(found)}
	if len(found) == limit {
		if page.NextCursor, err = q.EncodeCursor(templatestore.ID{Name: found[limit-1].Name, Locale: found[limit-1].Locale}); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, page)
	return nil
}

// maxLocales limits the locales of one template that are shown, maxEvents its events.
const maxLocales, maxEvents = 100, 100

type historyEvent struct {
	Action  string    `json:"action"`
	Locale  string    `json:"locale,omitempty"`
	Version *int      `json:"version,omitempty"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
}

type templateAnswer struct {
	Name    string         `json:"name"`
	Locales []summary      `json:"locales"`
	Events  []historyEvent `json:"events"`
}

// Show lists the locales of a template and who created, published and deleted its versions.
func (h *Handlers) Show(c *gin.Context) error {
	company := reqctx.CompanyOf(c)
	name, err := nameOf(c)
	if err != nil {
		return err
	}
	found, err := h.store.List(c.Request.Context(), company, templatestore.ID{}, name, maxLocales)
	if err != nil {
		return err
	}
	events, err := h.store.History(c.Request.Context(), company, name, maxEvents)
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return noSuchTemplate
	}
	answer := templateAnswer{Name: name, Locales: summariesOf(found), Events: make([]historyEvent, len(events))}
	for i, e := range events {
		answer.Events[i] = historyEvent{Action: e.Action, Locale: e.Locale, Version: e.Version, By: e.Actor, At: e.At.UTC()}
	}
	c.JSON(http.StatusOK, answer)
	return nil
}
