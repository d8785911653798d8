package httpapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/templates"
	"email-gateway/shared/rules"
	stored "email-gateway/shared/store/template"
)

// templateSummary is a template in one locale.
type templateSummary struct {
	Name             string    `json:"name"`
	Locale           string    `json:"locale,omitempty"`
	LatestVersion    int       `json:"latestVersion"`
	PublishedVersion *int      `json:"publishedVersion,omitempty"`
	UpdatedAt        time.Time `json:"updatedAt"`
}

type templatePage struct {
	Templates  []templateSummary `json:"templates"`
	NextCursor string            `json:"nextCursor,omitempty"`
}

func summariesOf(found []stored.Summary) []templateSummary {
	all := make([]templateSummary, len(found))
	for i, s := range found {
		all[i] = templateSummary{Name: s.Name, Locale: s.Locale, LatestVersion: s.Latest, PublishedVersion: s.Published, UpdatedAt: s.UpdatedAt.UTC()}
	}
	return all
}

func (a *API) listTemplates(c *gin.Context) error {
	q, err := openQuery(c.Request.URL.RawQuery, a.rules)
	if err != nil {
		return err
	}
	limit := q.limit("limit")
	var after stored.ID
	if text, given := q.get("cursor"); given && json.Unmarshal(decodeCursor(text), &after) != nil {
		q.faults.Add("cursor", "INVALID_CURSOR", "must be the nextCursor of a page")
	}
	if err := q.close(); err != nil {
		return err
	}
	found, err := a.templates.store.List(c.Request.Context(), visitOf(c).caller.CompanyID, after, "", limit)
	if err != nil {
		return err
	}
	page := templatePage{Templates: summariesOf(found)}
	if len(found) == limit {
		if page.NextCursor, err = encodeCursor(stored.ID{Name: found[limit-1].Name, Locale: found[limit-1].Locale}); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, page)
	return nil
}

// maxLocales limits the locales of one template that are shown, maxTemplateEvents its events.
const maxLocales, maxTemplateEvents = 100, 100

type templateEvent struct {
	Action  string    `json:"action"`
	Locale  string    `json:"locale,omitempty"`
	Version *int      `json:"version,omitempty"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
}

type templateAnswer struct {
	Name    string            `json:"name"`
	Locales []templateSummary `json:"locales"`
	Events  []templateEvent   `json:"events"`
}

// showTemplate lists the locales of a template and who created, published and deleted its versions.
func (a *API) showTemplate(c *gin.Context) error {
	company, name := visitOf(c).caller.CompanyID, c.Param("name")
	var wrong rules.Faults
	if templates.CheckName("", name, &wrong); len(wrong) > 0 {
		return noSuchTemplate
	}
	found, err := a.templates.store.List(c.Request.Context(), company, stored.ID{}, name, maxLocales)
	if err != nil {
		return err
	}
	events, err := a.templates.store.History(c.Request.Context(), company, name, maxTemplateEvents)
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return noSuchTemplate
	}
	answer := templateAnswer{Name: name, Locales: summariesOf(found), Events: make([]templateEvent, len(events))}
	for i, e := range events {
		answer.Events[i] = templateEvent{Action: e.Action, Locale: e.Locale, Version: e.Version, By: e.Actor, At: e.At.UTC()}
	}
	c.JSON(http.StatusOK, answer)
	return nil
}
