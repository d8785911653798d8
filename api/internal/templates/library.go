// Package templates finds, parses and renders the stored templates of companies, for requests that send an email
// with one and for previews: both render with Library.Render.
package templates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	templatestore "email-gateway/shared/store/template"
	"email-gateway/shared/template"
)

// Finder is the part of *templatestore.Store that a Library uses.
type Finder interface {
	Resolve(ctx context.Context, company uuid.UUID, name string, locales []string) (templatestore.ID, int, error)
	ResolveVersion(ctx context.Context, company uuid.UUID, name string, locales []string, version int) (templatestore.ID, error)
	Find(ctx context.Context, company uuid.UUID, id templatestore.ID, version int) (templatestore.Version, error)
}

// Library renders stored templates. It caches parsed versions. Which version is published, and whether a version that the
// request names still exists, is read from the database for each request: a publication or deletion by any api process is
// effective immediately.
type Library struct {
	store    Finder
	cache    *cache
	withSlot WithSlot
}

// WithSlot waits for a slot of the company and runs work that takes long. Its error is that of work, or why there was
// no slot.
type WithSlot func(ctx context.Context, company uuid.UUID, work func() error) error

// slotFrom is the number of bytes from which sources and data wait for a slot before they are parsed: 8 KiB of either
// take well under a millisecond, 512 KiB up to 30 ms.
const slotFrom = 8 << 10

// NewLibrary returns a Library.
func NewLibrary(f Finder, withSlot WithSlot) *Library {
	return &Library{store: f, cache: newCache(), withSlot: withSlot}
}

// Use names a template and the data for it.
type Use struct {
	Name    string
	Locale  string // "" = the default
	Version int    // 0 = the published one
	Data    json.RawMessage
}

// Memory is the maximum number of bytes that rendering takes, for the content and the decoded data.
func (u Use) Memory() int64 {
	return 2*template.MaxBody + template.MaxSubject + int64(len(u.Data)) + template.DataMemory(len(u.Data))
}

// Identity names a version.
type Identity struct {
	Name    string
	Locale  string // of the version; "" = the default
	Version int
}

// RenderedTemplate is a rendered template.
type RenderedTemplate struct {
	Identity
	Rendered template.Rendered
}

// Found is a version with its source.
type Found struct {
	Identity
	Source template.Source
	Parsed *template.Template
}

// Ref is how an email names the version it was made from: name@version or name/locale@version.
func (i Identity) Ref() string {
	if i.Locale == "" {
		return i.Name + "@" + strconv.Itoa(i.Version)
	}
	return i.Name + "/" + i.Locale + "@" + strconv.Itoa(i.Version)
}

// Memory is the size of the content in bytes.
func (m RenderedTemplate) Memory() int64 {
	return int64(len(m.Rendered.Subject) + len(m.Rendered.HTML) + len(m.Rendered.Text))
}

// ParseRef is the inverse of Ref.
func ParseRef(ref string) (name, locale string, version int) {
	name, number, _ := strings.Cut(ref, "@")
	name, locale, _ = strings.Cut(name, "/")
	version, _ = strconv.Atoi(number) // written by Ref
	return name, locale, version
}

// CodeNotFound: the company has no such template.
const CodeNotFound = "TEMPLATE_NOT_FOUND"

// Render renders a template. field is the path of the use in the request, such as "template"; "" for the whole
// request. The error is the database's, or that of WithSlot.
func (l *Library) Render(ctx context.Context, company uuid.UUID, field string, use Use) (RenderedTemplate, rules.Faults, error) {
	id, parsed, faults, err := l.find(ctx, company, field, use)
	made := RenderedTemplate{Identity: id}
	dataField := path(field, "data")
	if err != nil {
		return RenderedTemplate{}, nil, err
	}
	var data template.Data
	read := func() error {
		var wrong error
		if data, wrong = template.ReadData(use.Data); wrong != nil {
			faults.Add(dataField, "INVALID_DATA", wrong.Error())
		}
		return nil
	}
	if err := l.maybeWithSlot(ctx, company, len(use.Data), read); err != nil || len(faults) > 0 {
		return RenderedTemplate{}, faults, err
	}
	var done bool
	if made.Rendered, faults, done = parsed.RenderQuickly(dataField, data); done {
		return made, faults, nil
	}
	err = l.withSlot(ctx, company, func() error {
		made.Rendered, faults = parsed.Render(dataField, data)
		return nil
	})
	return made, faults, err
}

// Find returns a version with its source. The faults name the fields name and locale.
func (l *Library) Find(ctx context.Context, company uuid.UUID, use Use) (Found, rules.Faults, error) {
	id, parsed, faults, err := l.find(ctx, company, "", use)
	if err != nil || len(faults) > 0 {
		return Found{}, faults, err
	}
	v, err := l.store.Find(ctx, company, templatestore.ID{Name: id.Name, Locale: id.Locale}, id.Version)
	if errors.Is(err, store.ErrNotFound) { // deleted since
		faults.Add("name", CodeNotFound, notFound(use))
		return Found{}, faults, nil
	}
	if err != nil {
		return Found{}, nil, err
	}
	source, err := SourceOf(v)
	return Found{Identity: id, Source: source, Parsed: parsed}, nil, err
}

// Parse parses a source. The error is that of WithSlot.
func (l *Library) Parse(ctx context.Context, company uuid.UUID, source template.Source) (parsed *template.Template, faults rules.Faults, err error) {
	err = l.maybeWithSlot(ctx, company, len(source.HTML)+len(source.Text), func() error {
		parsed, faults = template.Parse(source)
		return nil
	})
	return parsed, faults, err
}

func (l *Library) maybeWithSlot(ctx context.Context, company uuid.UUID, size int, work func() error) error {
	if size <= slotFrom {
		return work()
	}
	return l.withSlot(ctx, company, work)
}

func notFound(use Use) string {
	if use.Version > 0 {
		return fmt.Sprintf("has no version %d for this locale", use.Version)
	}
	return "has no published version for this locale, nor for the default"
}

// find is resolve with faults: of the name and locale, or that there is no such version.
func (l *Library) find(ctx context.Context, company uuid.UUID, field string, use Use) (Identity, *template.Template, rules.Faults, error) {
	var faults rules.Faults
	CheckName(field, use.Name, &faults)
	CheckLocale(field, use.Locale, &faults)
	if len(faults) > 0 {
		return Identity{}, nil, faults, nil
	}
	id, number, parsed, err := l.resolve(ctx, company, use)
	if errors.Is(err, store.ErrNotFound) {
		faults.Add(path(field, "name"), CodeNotFound, notFound(use))
		return Identity{}, nil, faults, nil
	}
	return Identity{id.Name, id.Locale, number}, parsed, nil, err
}

// resolve returns the published version, or the version that the request names, in the first locale that has it.
func (l *Library) resolve(ctx context.Context, company uuid.UUID, use Use) (id templatestore.ID, number int, parsed *template.Template, err error) {
	if number = use.Version; number == 0 {
		id, number, err = l.store.Resolve(ctx, company, use.Name, Fallback(use.Locale))
	} else {
		id, err = l.store.ResolveVersion(ctx, company, use.Name, Fallback(use.Locale), number)
	}
	if err != nil {
		return templatestore.ID{}, 0, nil, err
	}
	parsed, err = l.version(ctx, company, id, number)
	return id, number, parsed, err
}

// version returns a version that the database has, from the cache if it is there.
func (l *Library) version(ctx context.Context, company uuid.UUID, id templatestore.ID, number int) (*template.Template, error) {
	key := version{company, id.Name, id.Locale, number}
	if parsed, ok := l.cache.Get(key); ok {
		return parsed, nil
	}
	v, err := l.store.Find(ctx, company, id, number)
	if err != nil {
		return nil, err
	}
	source, err := SourceOf(v)
	if err != nil {
		return nil, err
	}
	parsed, faults, err := l.Parse(ctx, company, source)
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("parse stored template %s version %d: %s %s", id.Name, number, faults[0].Field, faults[0].Code)
	}
	l.cache.Put(company, key, parsed, parsed.Size())
	return parsed, nil
}

// SourceOf is the source of a stored version.
func SourceOf(v templatestore.Version) (template.Source, error) {
	source := template.Source{Subject: v.Subject, HTML: v.HTML, Text: v.Text}
	if err := json.Unmarshal([]byte(v.Variables), &source.Variables); err != nil {
		return template.Source{}, fmt.Errorf("read variables of template %s version %d: %w", v.Name, v.Version, err)
	}
	return source, nil
}

var (
	namePattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	localePattern = regexp.MustCompile(`^[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?$`)
)

// CheckName adds a fault if a template cannot have this name.
func CheckName(field, name string, f *rules.Faults) {
	switch {
	case name == "":
		f.Add(path(field, "name"), rules.CodeRequired, "is required")
	case !namePattern.MatchString(name):
		f.Add(path(field, "name"), "INVALID_NAME", "must be 1 to 64 of a-z, 0-9, . _ - and begin with a letter or digit")
	}
}

// CheckLocale adds a fault if a locale is not written as pt or pt-BR.
func CheckLocale(field, locale string, f *rules.Faults) {
	if locale != "" && !localePattern.MatchString(locale) {
		f.Add(path(field, "locale"), "INVALID_LOCALE", "must be a language with an optional script and region, such as pt, pt-BR or zh-Hant-TW")
	}
}

// Fallback lists the locales in which a template is looked for: pt-BR, pt and the default.
func Fallback(locale string) []string {
	var all []string
	for locale != "" {
		all = append(all, locale)
		locale = locale[:max(strings.LastIndexByte(locale, '-'), 0)]
	}
	return append(all, "")
}

func path(parent, name string) string {
	if parent == "" {
		return name
	}
	return parent + "." + name
}
