package sending

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/api/internal/templates"
	"email-gateway/shared/draft"
	"email-gateway/shared/rules"
)

// renderTemplate replaces the template of a send request by what it renders, and returns the version's reference.
// Faults are added to those found; the error is the database's. After a fault the request has a content of its own,
// so that the missing one is not reported too.
func (c *composer) renderTemplate(ctx context.Context, company uuid.UUID, request *draft.Email, found *rules.Faults) (ref string, err error) {
	use := request.Template
	if use == nil {
		return "", nil
	}
	request.Template = nil
	for _, given := range []struct{ field, text string }{{"subject", request.Subject}, {"html", request.HTML}, {"text", request.Text}} {
		if given.text != "" {
			found.Add(given.field, rules.CodeNotAllowed, "must not be given together with a template: the template defines it")
		}
	}
	var version int
	if use.Version != nil {
		if version = *use.Version; version < 1 {
			found.Add("template.version", rules.CodeOutOfRange, "must be at least 1")
		}
	}
	locale := ""
	if use.Locale != nil {
		locale = *use.Locale
	}
	inData := func(f rules.Fault) bool { return strings.HasPrefix(f.Field, "template.data") }
	if !found.Has("subject", "html", "text", "template.version") && !slices.ContainsFunc(*found, inData) {
		var faults rules.Faults
		made, faults, err := compose.Render(ctx, c.library, company, "template", templates.Use{Name: use.Name, Locale: locale, Version: version, Data: use.Data})
		if err != nil {
			return "", err
		}
		for _, f := range faults {
			if f.Field == "subject" || f.Field == "html" || f.Field == "text" {
				f.Field, f.Message = "template", "renders a "+f.Field+" that "+f.Message
			}
			found.Add(f.Field, f.Code, f.Message)
		}
		if len(faults) == 0 {
			request.Subject, request.HTML, request.Text = made.Rendered.Subject, made.Rendered.HTML, made.Rendered.Text
			return made.Ref(), nil
		}
	}
	request.Subject, request.HTML, request.Text = "x", "<p>x</p>", ""
	return "", nil
}
