package templates

import (
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/strictjson"
	"email-gateway/api/internal/templates"
	"email-gateway/shared/draft"
	"email-gateway/shared/mailmerge"
)

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

// Preview renders what a send with the same data would send, and checks it likewise.
func (h *Handlers) Preview(c *gin.Context) error {
	document, err := reqbody.ReadJSON(c)
	if err != nil {
		return err
	}
	request, found := h.previews.Read(document)
	faults := h.rules.Check(&request, found)
	if len(faults) > 0 {
		return problem.Invalid(faults)
	}
	company := reqctx.CompanyOf(c)
	made, faults, err := compose.Render(c.Request.Context(), h.library, company, "", templates.Use{
		Name: c.Param("name"), Locale: strictjson.Or(request.Locale, ""), Version: strictjson.Or(request.Version, 0), Data: request.Data,
	})
	switch {
	case err != nil:
		return err
	case faults.Has("name"):
		return noSuchTemplate
	case len(faults) > 0:
		return problem.Invalid(faults)
	}
	d := draft.Content(h.rules, made.Rendered.Subject, made.Rendered.HTML, made.Rendered.Text)
	// A preview has no attachments to which the html may refer.
	if d.Email.HTML != "" && !d.Faults.Has("html") {
		if err := h.html.CheckTemplate(c.Request.Context(), company, mailmerge.Checked{HTML: d.Email.HTML}, &d.Faults); err != nil {
			return err
		}
	}
	if len(d.Faults) > 0 {
		return problem.Invalid(d.Faults)
	}
	content := d.Email
	if content.Text == "" && strictjson.Or(request.AutoText, true) {
		if content.Text, err = h.html.TextOf(c.Request.Context(), company, content.HTML); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, previewAnswer{
		Name: made.Name, Locale: made.Locale, Version: made.Version,
		Subject: content.Subject, HTML: content.HTML, Text: content.Text,
	})
	return nil
}
