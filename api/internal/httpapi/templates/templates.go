package templates

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

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/strictjson"
	"email-gateway/api/internal/templates"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	templatestore "email-gateway/shared/store/template"
	"email-gateway/shared/template"
)

// versionMemory is the memory for a response with a template, before its size is known (bytes).
const versionMemory = 4 << 20

// createRequest is the body of POST /v1/templates.
type createRequest struct {
	Name      string     `json:"name" validate:"required"`
	Locale    *string    `json:"locale" blank:"refused"`
	Subject   string     `json:"subject"`
	HTML      string     `json:"html"`
	Text      string     `json:"text"`
	Variables []variable `json:"variables" validate:"max=200"`
	Publish   *bool      `json:"publish"`
}

type variable struct {
	Name        string          `json:"name"`
	Required    *bool           `json:"required"`
	Default     json.RawMessage `json:"default"`
	Description string          `json:"description"`
}

type versionAnswer struct {
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

// Create stores a version. If its content is that of the newest version, it creates none.
func (h *Handlers) Create(c *gin.Context) error {
	document, err := reqbody.ReadJSON(c)
	if err != nil {
		return err
	}
	request, found := h.creates.Read(document)
	faults := h.rules.Check(&request, found)
	id := templatestore.ID{Name: request.Name, Locale: strictjson.Or(request.Locale, "")}
	templates.CheckName("", id.Name, &faults)
	templates.CheckLocale("", id.Locale, &faults)
	source := template.Source{Subject: request.Subject, HTML: request.HTML, Text: request.Text, Variables: make([]template.Variable, len(request.Variables))}
	for i, v := range request.Variables {
		source.Variables[i] = template.Variable(v)
	}
	v := reqctx.StateOf(c)
	_, more, err := h.library.Parse(c.Request.Context(), v.Caller.CompanyID, source)
	if err != nil {
		return err
	}
	for _, f := range more {
		faults.Add(f.Field, f.Code, f.Message)
	}
	if source.HTML != "" && !faults.Has("html") {
		if err := h.html.CheckTemplate(c.Request.Context(), v.Caller.CompanyID, mailmerge.CheckedOutline(source.HTML), &faults); err != nil {
			return err
		}
	}
	if len(faults) > 0 {
		return problem.Invalid(faults)
	}
	variables, err := json.Marshal(source.Variables)
	if err != nil {
		return fmt.Errorf("encode variables: %w", err)
	}
	keep, err := reserve(c)
	if err != nil {
		return err
	}
	created, made, err := h.store.Create(c.Request.Context(), v.Caller.CompanyID, "key:"+v.Caller.KeyID, templatestore.Version{
		Name: id.Name, Locale: id.Locale, Subject: source.Subject, HTML: source.HTML, Text: source.Text, Variables: string(variables),
	}, strictjson.Or(request.Publish, false))
	switch {
	case errors.Is(err, templatestore.ErrFull):
		return templatesFull
	case err != nil:
		return err
	}
	status := http.StatusOK
	if made {
		status = http.StatusCreated
	}
	return answerVersion(c, status, created, keep)
}

// reserve reserves memory for a response with a version, from the request's ExtraMemory, and before the version is
// written: the answer must not fail once the change is committed. keep keeps what the response needs until the client
// has read it.
func reserve(c *gin.Context) (keep func(bytes int64), err error) {
	ctx := c.Request.Context()
	return reqbody.ExtraMemoryOf(ctx).Reserve(ctx, versionMemory)
}

// answerVersion responds with a version.
func answerVersion(c *gin.Context, status int, v templatestore.Version, keep func(bytes int64)) error {
	source, err := templates.SourceOf(v)
	if err != nil {
		return err
	}
	answer, err := json.Marshal(versionAnswer{
		Name: v.Name, Locale: v.Locale, Version: v.Version, Published: v.Published, Subject: v.Subject,
		HTML: v.HTML, Text: v.Text, Variables: source.Variables, CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt.UTC(),
	})
	if err != nil {
		return fmt.Errorf("encode template version: %w", err)
	}
	keep(int64(len(answer)))
	c.Data(status, "application/json; charset=utf-8", answer)
	return nil
}

// nameOf reads the name in the path. There is no template with a malformed one.
func nameOf(c *gin.Context) (string, error) {
	name := c.Param("name")
	var faults rules.Faults
	if templates.CheckName("", name, &faults); len(faults) > 0 {
		return "", noSuchTemplate
	}
	return name, nil
}

// templateID reads the name of the path and the locale of the query.
func (h *Handlers) templateID(c *gin.Context) (templatestore.ID, error) {
	name, err := nameOf(c)
	if err != nil {
		return templatestore.ID{}, err
	}
	q, err := query.Open(c.Request, h.rules)
	if err != nil {
		return templatestore.ID{}, err
	}
	locale, _ := q.Get("locale")
	templates.CheckLocale("", locale, &q.Faults)
	return templatestore.ID{Name: name, Locale: locale}, q.Close()
}

// ShowVersion handles GET /v1/templates/{name}/versions/{version}.
func (h *Handlers) ShowVersion(c *gin.Context) error {
	id, err := h.templateID(c)
	if err != nil {
		return err
	}
	number, err := strconv.ParseInt(c.Param("version"), 10, 32)
	if err != nil || number < 1 {
		return noSuchTemplate
	}
	return h.answerFound(c, func(ctx context.Context, company uuid.UUID) (templatestore.Version, error) {
		return h.store.Find(ctx, company, id, int(number))
	})
}

// publishRequest is the body of POST /v1/templates/{name}/publish.
type publishRequest struct {
	Version int     `json:"version" validate:"required,min=1"`
	Locale  *string `json:"locale" blank:"refused"`
}

// Publish is idempotent.
func (h *Handlers) Publish(c *gin.Context) error {
	name, err := nameOf(c)
	if err != nil {
		return err
	}
	document, err := reqbody.ReadJSON(c)
	if err != nil {
		return err
	}
	request, found := h.publishRequests.Read(document)
	faults := h.rules.Check(&request, found)
	id := templatestore.ID{Name: name, Locale: strictjson.Or(request.Locale, "")}
	templates.CheckLocale("", id.Locale, &faults)
	if len(faults) > 0 {
		return problem.Invalid(faults)
	}
	return h.answerFound(c, func(ctx context.Context, company uuid.UUID) (templatestore.Version, error) {
		return h.store.Publish(ctx, company, "key:"+reqctx.StateOf(c).Caller.KeyID, id, request.Version)
	})
}

// answerFound responds with the version that do finds or publishes.
func (h *Handlers) answerFound(c *gin.Context, do func(ctx context.Context, company uuid.UUID) (templatestore.Version, error)) error {
	keep, err := reserve(c)
	if err != nil {
		return err
	}
	found, err := do(c.Request.Context(), reqctx.CompanyOf(c))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchTemplate
	case err != nil:
		return err
	}
	return answerVersion(c, http.StatusOK, found, keep)
}

// Delete deletes a template in one locale.
func (h *Handlers) Delete(c *gin.Context) error {
	id, err := h.templateID(c)
	if err != nil {
		return err
	}
	v := reqctx.StateOf(c)
	err = h.store.Delete(c.Request.Context(), v.Caller.CompanyID, "key:"+v.Caller.KeyID, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noSuchTemplate
	case err != nil:
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}
