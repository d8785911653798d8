package templates

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	templatestore "email-gateway/shared/store/template"
)

// versions are stored versions by name, each published.
type versions map[string]templatestore.Version

func (v versions) Resolve(_ context.Context, _ uuid.UUID, name string, _ []string) (templatestore.ID, int, error) {
	if _, ok := v[name]; !ok {
		return templatestore.ID{}, 0, store.ErrNotFound
	}
	return templatestore.ID{Name: name}, 1, nil
}

func (v versions) ResolveVersion(_ context.Context, _ uuid.UUID, name string, _ []string, _ int) (templatestore.ID, error) {
	return templatestore.ID{Name: name}, nil
}

func (v versions) Find(_ context.Context, _ uuid.UUID, id templatestore.ID, _ int) (templatestore.Version, error) {
	return v[id.Name], nil
}

// An expensive rendering waits for a slot of its company; a usual one does not, so that it never waits for an expensive
// one.
func TestRender_ExpensiveWaitsForASlot(t *testing.T) {
	t.Parallel()
	v := versions{
		"usual": {Name: "usual", Subject: "s", HTML: "<p>{{#l}}{{.}}{{/l}}</p>", Variables: "[]"},
		"large": {Name: "large", Subject: "s", Text: strings.Repeat("a", slotFrom+1), Variables: "[]"},
		"loops": {Name: "loops", Subject: "s", Text: "{{#l}}{{#l}}{{#l}}{{/l}}{{/l}}{{/l}}x", Variables: "[]"},
		"grows": {Name: "grows", Subject: "s", Text: "{{#l}}" + strings.Repeat("0123456789", 100) + "{{/l}}", Variables: "[]"},
		"wrong": {Name: "wrong", Subject: "s", Text: "{{#l}}{{gone}}{{/l}}", Variables: "[]"},
	}
	noTurn := errors.New("no turn")
	for name, c := range map[string]struct {
		template, data string
		waits          bool
	}{
		"a short list":                  {"usual", `{"l": [1, 2]}`, false},
		"a large source":                {"large", `{}`, true},
		"data of many bytes":            {"usual", `{"l": ["` + strings.Repeat("a", slotFrom) + `"]}`, true},
		"many tags":                     {"loops", `{"l": [` + strings.Repeat("1,", 99) + `1]}`, true},
		"a body of many bytes":          {"grows", `{"l": [` + strings.Repeat("1,", 99) + `1]}`, true},
		"many faults, found at once":    {"wrong", `{"l": [` + strings.Repeat("1,", 2000) + `1]}`, false},
		"a template that is not there":  {"other", `{}`, false},
		"data that is no JSON is quick": {"usual", `{"l": `, false},
	} {
		waited := false
		l := NewLibrary(v, func(context.Context, uuid.UUID, func() error) error {
			waited = true
			return noTurn
		})
		_, _, err := l.Render(t.Context(), uuid.New(), "template", Use{Name: c.template, Data: []byte(c.data)})
		if waited != c.waits || errors.Is(err, noTurn) != c.waits {
			t.Errorf("%s: waited %v, %v", name, waited, err)
		}
	}
	// With a slot, the rendering gets the whole limit.
	l := NewLibrary(v, func(_ context.Context, _ uuid.UUID, work func() error) error { return work() })
	made, faults, err := l.Render(t.Context(), uuid.New(), "template", Use{Name: "grows", Data: []byte(`{"l": [` + strings.Repeat("1,", 99) + `1]}`)})
	if err != nil || len(faults) > 0 || len(made.Rendered.Text) != 100_000 {
		t.Errorf("%d bytes, %v, %v", len(made.Rendered.Text), faults, err)
	}
}
