package compose

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/templates"
	"email-gateway/shared/rules"
)

// Render renders a template with the ExtraMemory of ctx.
func Render(ctx context.Context, l *templates.Library, company uuid.UUID, field string, use templates.Use) (templates.RenderedTemplate, rules.Faults, error) {
	keep, err := reqbody.ExtraMemoryOf(ctx).Reserve(ctx, use.Memory())
	if err != nil {
		return templates.RenderedTemplate{}, nil, err
	}
	made, faults, err := l.Render(ctx, company, field, use)
	keep(made.Memory())
	return made, faults, err
}
