package templates

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	templatestore "email-gateway/shared/store/template"
)

// ForBatch returns a Library for one batch, in which every item that names the same template gets the same version: it is
// resolved once. It is not safe for concurrent use.
func (l *Library) ForBatch() *Library {
	return &Library{store: &resolutions{Finder: l.store, known: make(map[string]resolution)}, cache: l.cache, withSlot: l.withSlot}
}

// resolutions is a Finder that remembers what it has resolved.
type resolutions struct {
	Finder
	known map[string]resolution
}

// resolution is a version, or store.ErrNotFound.
type resolution struct {
	id     templatestore.ID
	number int
	err    error
}

func (r *resolutions) Resolve(ctx context.Context, company uuid.UUID, name string, locales []string) (templatestore.ID, int, error) {
	return r.resolveCached(fmt.Sprint(company, name, locales), func() (resolution, error) {
		id, number, err := r.Finder.Resolve(ctx, company, name, locales)
		return resolution{id, number, err}, err
	})
}

func (r *resolutions) ResolveVersion(ctx context.Context, company uuid.UUID, name string, locales []string, version int) (templatestore.ID, error) {
	id, _, err := r.resolveCached(fmt.Sprint(company, name, locales, version), func() (resolution, error) {
		id, err := r.Finder.ResolveVersion(ctx, company, name, locales, version)
		return resolution{id, version, err}, err
	})
	return id, err
}

// resolveCached calls resolve unless it has resolved the key before. It does not remember an outage.
func (r *resolutions) resolveCached(key string, resolve func() (resolution, error)) (templatestore.ID, int, error) {
	found, known := r.known[key]
	if !known {
		var err error
		if found, err = resolve(); err == nil || errors.Is(err, store.ErrNotFound) {
			r.known[key] = found
		}
	}
	return found.id, found.number, found.err
}
