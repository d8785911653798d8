package httpapi

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/slots"
	stored "email-gateway/shared/store/template"
)

// fairTemplates is the template store with the concurrency limit of fairStore. Lookups for sending have the slots of
// lookups, so that a company's uploads do not delay its emails.
type fairTemplates struct {
	TemplateStore
	fair slots.Slots
}

func (f fairTemplates) Resolve(ctx context.Context, company uuid.UUID, name string, locales []string) (id stored.ID, version int, err error) {
	err = f.fair.ForLookUp().Do(ctx, company, func() error {
		id, version, err = f.TemplateStore.Resolve(ctx, company, name, locales)
		return err
	})
	return id, version, err
}

func (f fairTemplates) ResolveVersion(ctx context.Context, company uuid.UUID, name string, locales []string, version int) (stored.ID, error) {
	return slots.Run(ctx, f.fair.ForLookUp(), company, func() (stored.ID, error) {
		return f.TemplateStore.ResolveVersion(ctx, company, name, locales, version)
	})
}

func (f fairTemplates) Find(ctx context.Context, company uuid.UUID, id stored.ID, version int) (stored.Version, error) {
	return slots.Run(ctx, f.fair.ForLookUp(), company, func() (stored.Version, error) { return f.TemplateStore.Find(ctx, company, id, version) })
}

func (f fairTemplates) Create(ctx context.Context, company uuid.UUID, actor string, v stored.Version, publish bool) (created stored.Version, made bool, err error) {
	err = f.fair.Do(ctx, company, func() error {
		created, made, err = f.TemplateStore.Create(ctx, company, actor, v, publish)
		return err
	})
	return created, made, err
}

func (f fairTemplates) Publish(ctx context.Context, company uuid.UUID, actor string, id stored.ID, version int) (stored.Version, error) {
	return slots.Run(ctx, f.fair, company, func() (stored.Version, error) { return f.TemplateStore.Publish(ctx, company, actor, id, version) })
}

func (f fairTemplates) Delete(ctx context.Context, company uuid.UUID, actor string, id stored.ID) error {
	return f.fair.Do(ctx, company, func() error { return f.TemplateStore.Delete(ctx, company, actor, id) })
}

func (f fairTemplates) List(ctx context.Context, company uuid.UUID, after stored.ID, name string, limit int) ([]stored.Summary, error) {
	return slots.Run(ctx, f.fair, company, func() ([]stored.Summary, error) { return f.TemplateStore.List(ctx, company, after, name, limit) })
}

func (f fairTemplates) History(ctx context.Context, company uuid.UUID, name string, limit int) ([]stored.Event, error) {
	return slots.Run(ctx, f.fair, company, func() ([]stored.Event, error) { return f.TemplateStore.History(ctx, company, name, limit) })
}
