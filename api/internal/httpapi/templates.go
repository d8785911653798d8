package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/mailing"
	"email-gateway/api/internal/strictjson"
	"email-gateway/api/internal/templates"
	"email-gateway/shared/draft"
	"email-gateway/shared/store"
	stored "email-gateway/shared/store/template"
	"email-gateway/shared/template"
)

// TemplateStore is the part of *stored.Store that requests use.
type TemplateStore interface {
	templates.Finder
	Create(ctx context.Context, company uuid.UUID, actor string, v stored.Version, publish bool) (number int, made bool, err error)
	Publish(ctx context.Context, company uuid.UUID, actor string, id stored.ID, version int) error
	Delete(ctx context.Context, company uuid.UUID, actor string, id stored.ID) error
	List(ctx context.Context, company uuid.UUID, after stored.ID, name string, limit int) ([]stored.Summary, error)
	History(ctx context.Context, company uuid.UUID, name string, limit int) ([]stored.Event, error)
}

const templatesPath = "/v1/templates"

// templateService handles the requests about templates.
type templateService struct {
	store    TemplateStore
	library  *templates.Library
	creates  *strictjson.Reader[templateRequest]
	publishs *strictjson.Reader[publishRequest]
	previews *strictjson.Reader[previewRequest]
}

func newTemplateService(s TemplateStore, fair fairStore, turns *mailing.Limiter) (*templateService, error) {
	creates, err := strictjson.NewReader[templateRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare templates: %w", err)
	}
	publishs, err := strictjson.NewReader[publishRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare publications: %w", err)
	}
	previews, err := strictjson.NewReader[previewRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare previews: %w", err)
	}
	slots := fairTemplates{TemplateStore: s, fair: fair}
	library := templates.NewLibrary(slots, func(ctx context.Context, company uuid.UUID, work func() error) error {
		return inTurn(ctx, turns, company, func(context.Context) error { return work() })
	})
	return &templateService{store: slots, library: library, creates: creates, publishs: publishs, previews: previews}, nil
}

func (a *API) routeTemplates(r *gin.Engine) {
	write := r.Group(templatesPath, a.answer(a.authenticate), a.answer(scope(apikey.TemplatesWrite)))
	write.POST("", a.answer(a.bodies.limit), a.answer(a.createTemplate))
	write.POST("/:name/publish", a.answer(a.bodies.limit), a.answer(a.publishTemplate))
	write.DELETE("/:name", a.answer(a.deleteTemplate))

	read := r.Group(templatesPath, a.answer(a.authenticate), a.answer(scope(apikey.TemplatesRead)))
	read.GET("", a.answer(a.listTemplates))
	read.GET("/:name", a.answer(a.showTemplate))
	read.GET("/:name/versions/:version", a.answer(a.bodies.limit), a.answer(a.showTemplateVersion))
	read.POST("/:name/preview", a.answer(a.bodies.limit), a.answer(a.previewTemplate))
}

// templateRequest is the body of POST /v1/templates.
type templateRequest struct {
	Name      string             `json:"name" validate:"required"`
	Locale    *string            `json:"locale"`
	Subject   string             `json:"subject"`
	HTML      string             `json:"html"`
	Text      string             `json:"text"`
	Variables []templateVariable `json:"variables" validate:"max=200"`
	Publish   *bool              `json:"publish"`
}

type templateVariable struct {
	Name        string          `json:"name"`
	Required    *bool           `json:"required"`
	Default     json.RawMessage `json:"default"`
	Description string          `json:"description"`
}

type templateVersion struct {
	Name      string              `json:"name"`
	Locale    string              `json:"locale,omitempty"`
	Version   int                 `json:"version"`
	Published bool                `json:"published"`
	Subject   string              `json:"subject"`
	HTML      string              `json:"html,omitempty"`
	Text      string              `json:"text,omitempty"`
	Variables []template.Variable `json:"variables"`
	CreatedBy string              `json:"createdBy"`
	CreatedAt time.Time           `json:"createdAt"`
}

// createTemplate stores a version. If its content is that of the newest version, it creates none.
func (a *API) createTemplate(c *gin.Context) error {
	document, err := readJSON(c)
	if err != nil {
		return err
	}
	request, found := a.templates.creates.Read(document)
	wrong := a.rules.Check(&request, found)
	id := stored.ID{Name: request.Name, Locale: value(request.Locale, "")}
	templates.CheckName("", id.Name, &wrong)
	templates.CheckLocale("", id.Locale, &wrong)
	source := template.Source{Subject: request.Subject, HTML: request.HTML, Text: request.Text, Variables: make([]template.Variable, len(request.Variables))}
	for i, v := range request.Variables {
		source.Variables[i] = template.Variable(v)
	}
	v := visitOf(c)
	_, more, err := a.templates.library.Parse(c.Request.Context(), v.caller.CompanyID, source)
	if err != nil {
		return err
	}
	for _, f := range more {
		wrong.Add(f.Field, f.Code, f.Message)
	}
	if source.HTML != "" && !wrong.Has("html") {
		if err := a.composer.checkTemplate(c.Request.Context(), v.caller.CompanyID, source.HTML, &wrong); err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		return invalid(wrong)
	}
	variables, err := json.Marshal(source.Variables)
	if err != nil {
		return fmt.Errorf("encode variables: %w", err)
	}
	number, made, err := a.templates.store.Create(c.Request.Context(), v.caller.CompanyID, "key:"+v.caller.KeyID, stored.Version{
		Name: id.Name, Locale: id.Locale, Subject: source.Subject, HTML: source.HTML, Text: source.Text, Variables: string(variables),
	}, value(request.Publish, false))
	switch {
	case errors.Is(err, stored.ErrFull):
		return templatesFull
	case err != nil:
		return err
	}
	status := http.StatusOK
	if made {
		status = http.StatusCreated
	}
	return a.answerTemplateVersion(c, status, id, number)
}

// answerTemplateVersion responds with a version. Its memory is that of the request's room until the client has read it.
func (a *API) answerTemplateVersion(c *gin.Context, status int, id stored.ID, number int) error {
	ctx, company := c.Request.Context(), visitOf(c).caller.CompanyID
	keep, err := roomOf(ctx).reserve(ctx, templateRoom)
	if err != nil {
		return err
	}
	found, err := a.templates.store.Find(ctx, company, id, number)
	if errors.Is(err, store.ErrNotFound) {
		return noSuchTemplate
	}
	if err != nil {
		return err
	}
	source, err := templates.SourceOf(found)
	if err != nil {
		return err
	}
	answer, err := json.Marshal(templateVersion{
		Name: found.Name, Locale: found.Locale, Version: found.Version, Published: found.Published, Subject: found.Subject,
		HTML: found.HTML, Text: found.Text, Variables: source.Variables, CreatedBy: found.CreatedBy, CreatedAt: found.CreatedAt.UTC(),
	})
	if err != nil {
		return fmt.Errorf("encode template version: %w", err)
	}
	keep(int64(len(answer)))
	c.Data(status, "application/json; charset=utf-8", answer)
	return nil
}

// templateID reads the name of the path and the locale of the query.
func (a *API) templateID(c *gin.Context) (stored.ID, error) {
	q, err := openQuery(c.Request.URL.RawQuery, a.rules)
	if err != nil {
		return stored.ID{}, err
	}
	locale, _ := q.get("locale")
	templates.CheckLocale("", locale, &q.faults)
	return stored.ID{Name: c.Param("name"), Locale: locale}, q.close()
}

func (a *API) showTemplateVersion(c *gin.Context) error {
	id, err := a.templateID(c)
	if err != nil {
		return err
	}
	number, err := strconv.ParseInt(c.Param("version"), 10, 32)
	if err != nil || number < 1 {
		return noSuchTemplate
	}
	return a.answerTemplateVersion(c, http.StatusOK, id, int(number))
}

// publishRequest is the body of POST /v1/templates/{name}/publish.
type publishRequest struct {
	Version int     `json:"version" validate:"required,min=1"`
	Locale  *string `json:"locale"`
}

// publishTemplate is idempotent.
func (a *API) publishTemplate(c *gin.Context) error {
	document, err := readJSON(c)
	if err != nil {
		return err
	}
	request, found := a.templates.publishs.Read(document)
	wrong := a.rules.Check(&request, found)
	id := stored.ID{Name: c.Param("name"), Locale: value(request.Locale, "")}
	templates.CheckLocale("", id.Locale, &wrong)
	if len(wrong) > 0 {
		return invalid(wrong)
	}
	v := visitOf(c)
	if err := a.templates.store.Publish(c.Request.Context(), v.caller.CompanyID, "key:"+v.caller.KeyID, id, request.Version); err != nil {
		return err
	}
	return a.answerTemplateVersion(c, http.StatusOK, id, request.Version)
}

func (a *API) deleteTemplate(c *gin.Context) error {
	id, err := a.templateID(c)
	if err != nil {
		return err
	}
	v := visitOf(c)
	err = a.templates.store.Delete(c.Request.Context(), v.caller.CompanyID, "key:"+v.caller.KeyID, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchTemplate
	case err != nil:
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}

// previewRequest is the body of POST /v1/templates/{name}/preview.
type previewRequest struct {
	Locale  *string         `json:"locale"`
	Version *int            `json:"version" validate:"omitnil,min=1"`
	Data    json.RawMessage `json:"data"`
	// AutoText is as in a send.
	AutoText *bool `json:"autoText"`
}

type previewAnswer struct {
	Name    string `json:"name"`
	Locale  string `json:"locale,omitempty"`
	Version int    `json:"version"`
	Subject string `json:"subject"`
	HTML    string `json:"html,omitempty"`
	Text    string `json:"text,omitempty"`
}

// previewTemplate renders what a send with the same data would send, and checks it likewise.
func (a *API) previewTemplate(c *gin.Context) error {
	document, err := readJSON(c)
	if err != nil {
		return err
	}
	request, found := a.templates.previews.Read(document)
	wrong := a.rules.Check(&request, found)
	if len(wrong) > 0 {
		return invalid(wrong)
	}
	company := visitOf(c).caller.CompanyID
	made, wrong, err := render(c.Request.Context(), a.templates.library, company, "", templates.Use{
		Name: c.Param("name"), Locale: value(request.Locale, ""), Version: value(request.Version, 0), Data: request.Data,
	})
	switch {
	case err != nil:
		return err
	case wrong.Has("name"):
		return noSuchTemplate
	case len(wrong) > 0:
		return invalid(wrong)
	}
	d := draft.Content(a.rules, made.Rendered.Subject, made.Rendered.HTML, made.Rendered.Text)
	if err := a.composer.checkDraft(c.Request.Context(), company, d); err != nil {
		return err
	}
	if len(d.Faults) > 0 {
		return invalid(d.Faults)
	}
	content := d.Email
	if content.Text == "" && value(request.AutoText, true) {
		if content.Text, err = a.composer.textOf(c.Request.Context(), company, content.HTML); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, previewAnswer{
		Name: made.Name, Locale: made.Locale, Version: made.Version,
		Subject: content.Subject, HTML: content.HTML, Text: content.Text,
	})
	return nil
}
