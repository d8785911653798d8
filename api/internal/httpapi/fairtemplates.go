package httpapi

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/shared/store/template"
)

// fairTemplates is the template store with the concurrency limit of fairStore. Lookups for sending have the slots of
// lookups, so that a company's uploads do not delay its emails.
type fairTemplates struct {
	TemplateStore
	fair slots.Slots
}

func (f fairTemplates) Resolve(ctx context.Context, company uuid.UUID, name string, locales []string) (id template.ID, version int, err error) {
	err = f.fair.ForLookUp().Do(ctx, company, func() error {
		id, version, err = f.TemplateStore.Resolve(ctx, company, name, locales)
		return err
	})
	return id, version, err
}

func (f fairTemplates) ResolveVersion(ctx context.Context, company uuid.UUID, name string, locales []string, version int) (template.ID, error) {
	return slots.Run(ctx, f.fair.ForLookUp(), company, func() (template.ID, error) {
		return f.TemplateStore.ResolveVersion(ctx, company, name, locales, version)
	})
}

func (f fairTemplates) Find(ctx context.Context, company uuid.UUID, id template.ID, version int) (template.Version, error) {
	return slots.Run(ctx, f.fair.ForLookUp(), company, func() (template.Version, error) { return f.TemplateStore.Find(ctx, company, id, version) })
}

func (f fairTemplates) Create(ctx context.Context, company uuid.UUID, actor string, v template.Version, publish bool) (created template.Version, made bool, err error) {
	err = f.fair.Do(ctx, company, func() error {
		created, made, err = f.TemplateStore.Create(ctx, company, actor, v, publish)
		return err
	})
	return created, made, err
}

func (f fairTemplates) Publish(ctx context.Context, company uuid.UUID, actor string, id template.ID, version int) (template.Version, error) {
	return slots.Run(ctx, f.fair, company, func() (template.Version, error) { return f.TemplateStore.Publish(ctx, company, actor, id, version) })
}

func (f fairTemplates) Delete(ctx context.Context, company uuid.UUID, actor string, id template.ID) error {
	return f.fair.Do(ctx, company, func() error { return f.TemplateStore.Delete(ctx, company, actor, id) })
}

func (f fairTemplates) List(ctx context.Context, company uuid.UUID, after template.ID, name string, limit int) ([]template.Summary, error) {
	return slots.Run(ctx, f.fair, company, func() ([]template.Summary, error) { return f.TemplateStore.List(ctx, company, after, name, limit) })
}

func (f fairTemplates) History(ctx context.Context, company uuid.UUID, name string, limit int) ([]template.Event, error) {
	return slots.Run(ctx, f.fair, company, func() ([]template.Event, error) { return f.TemplateStore.History(ctx, company, name, limit) })
}
