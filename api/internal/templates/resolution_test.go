package templates

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	templatestore "email-gateway/shared/store/template"
)

// countedVersions counts the statements that resolve a version. Those with an outage fail.
type countedVersions struct {
	versions
	resolved int
	outage   error
}

func (c *countedVersions) Resolve(ctx context.Context, company uuid.UUID, name string, locales []string) (templatestore.ID, int, error) {
	if c.resolved++; c.outage != nil {
		return templatestore.ID{}, 0, c.outage
	}
	return c.versions.Resolve(ctx, company, name, locales)
}

func (c *countedVersions) ResolveVersion(ctx context.Context, company uuid.UUID, name string, locales []string, version int) (templatestore.ID, error) {
	c.resolved++
	return c.versions.ResolveVersion(ctx, company, name, locales, version)
}

// The items of a batch that name the same template cost one statement; those that name another version, locale or template do not
// share it, and neither does another batch.
func TestForBatch(t *testing.T) {
	t.Parallel()
	finder := &countedVersions{versions: versions{
		"a": {Name: "a", Subject: "s", Text: "a", Variables: "[]"},
		"b": {Name: "b", Subject: "s", Text: "b", Variables: "[]"},
	}}
	l := NewLibrary(finder, nil)
	company := uuid.New()
	uses := []Use{{Name: "a"}, {Name: "b"}, {Name: "a", Locale: "pt-BR"}, {Name: "a", Version: 1}, {Name: "gone"}}
	for range 2 {
		batch, before := l.ForBatch(), finder.resolved
		for range 3 {
			for _, use := range uses {
				use.Data = []byte(`{}`)
				made, faults, err := batch.Render(t.Context(), company, "template", use)
				if err != nil || (len(faults) > 0) != (use.Name == "gone") || len(faults) == 0 && made.Rendered.Text != use.Name {
					t.Fatalf("%+v: %+v, %v, %v", use, made, faults, err)
				}
			}
		}
		if n := finder.resolved - before; n != len(uses) {
			t.Errorf("%d statements for %d templates", n, len(uses))
		}
	}
}

// A database error affects only the item whose lookup failed.
func TestForBatch_Outage(t *testing.T) {
	t.Parallel()
	finder := &countedVersions{versions: versions{"a": {Name: "a", Subject: "s", Text: "a", Variables: "[]"}}, outage: store.ErrUnavailable}
	batch := NewLibrary(finder, nil).ForBatch()
	if _, _, err := batch.Render(t.Context(), uuid.Nil, "template", Use{Name: "a", Data: []byte(`{}`)}); !errors.Is(err, store.ErrUnavailable) {
		t.Error(err)
	}
	finder.outage = nil
	if _, _, err := batch.Render(t.Context(), uuid.Nil, "template", Use{Name: "a", Data: []byte(`{}`)}); err != nil {
		t.Error(err)
	}
}
