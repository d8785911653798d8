package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/store"
	"email-gateway/shared/template"
	"email-gateway/shared/unsubscribe"
)

// Templates loads a mailing's templates; store.ErrNotFound if there is no such mailing.
type Templates interface {
	MailingTemplates(ctx context.Context, mailing uuid.UUID) (store.MailingTemplates, error)
}

// Links builds unsubscribe links.
type Links struct {
	Keys      unsubscribe.Keys
	PublicURL string
}

// bodiesKept is the size of the template cache. A template may be 1 MiB and, with 10,000 tags in each body, 6 MiB when parsed. More than
// a few at a time come from different tenants, and a template is read in about a millisecond.
const bodiesKept = 16

// bodies renders the emails of mailings. It is safe for concurrent use.
type bodies struct {
	templates Templates
	links     Links

	mu    sync.Mutex
	ready map[uuid.UUID]*body
	order []uuid.UUID // least recently used first
}

// body is one mailing's parsed templates, bound to the order of its columns.
type body struct {
	html, text *mailmerge.Bound // one may be nil
	stored     *template.Row    // a stored template instead of them; nil = none
	autoText   bool
	files      int          // attachments of every email
	size       atomic.Int64 // estimated bytes of the next email's body; at first those of the templates
	// unusable is the error that keeps the templates from being used, or nil.
	unusable error
}

func newBodies(templates Templates, links Links) *bodies {
	return &bodies{templates: templates, links: links, ready: make(map[uuid.UUID]*body)}
}

// loadBody makes the body of a mailing's email, or reads a body that was too large to be loaded with the email.
func (p *Pipeline) loadBody(ctx context.Context, a *attempt) (err error) {
	switch {
	case a.row.MailingID.Valid:
		if a.row.LargeFields > 0 {
			if a.row.Fields, err = p.Loader.ReadFields(ctx, a.row.ID); err != nil {
				return err
			}
		}
		p.bodies.render(a)
		a.row.Fields = nil // the rendered body has them
	case a.row.LargeBody > 0:
		a.html, a.text, err = p.Loader.ReadBody(ctx, a.row.ID)
	}
	return err
}

// find sets the attempt's mailing. It returns database errors; an email that cannot be rendered gets the reason in
// a.unrenderable.
func (b *bodies) find(ctx context.Context, a *attempt) error {
	made, err := b.of(ctx, a.row.MailingID.UUID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		made = &body{unusable: errors.New("the mailing's templates have been deleted")}
	case err != nil:
		return err
	}
	a.shared, a.unrenderable = made, made.unusable
	return nil
}

// render sets the attempt's body and headers from the mailing.
func (b *bodies) render(a *attempt) {
	if a.unrenderable != nil {
		return
	}
	link := unsubscribe.URL(b.links.PublicURL, b.links.Keys.Seal(unsubscribe.Link{
		Company: a.row.CompanyID, Mailing: a.row.MailingID.UUID, Address: a.job.To,
	}))
	a.html, a.text, a.unrenderable = a.shared.fill(a, link)
	a.autoText, a.unsubscribe = a.shared.autoText, unsubscribe.Headers(link)
}

// fill renders the bodies of one email.
func (b *body) fill(a *attempt, link string) (html, text string, err error) {
	if b.stored != nil {
		made, err := b.stored.Render(template.Values{Email: a.job.To, Token: a.row.Token, UnsubscribeURL: link, Fields: a.row.Fields})
		return made.HTML, made.Text, err
	}
	values := mailmerge.Values(a.job.To, a.row.Token, a.job.Recipient.Nome, link, a.row.Fields)
	for _, part := range []struct {
		name  string
		bound *mailmerge.Bound
		into  *string
	}{{"html", b.html, &html}, {"text", b.text, &text}} {
		if part.bound == nil {
			continue
		}
		made, err := part.bound.AppendTo(nil, values)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", part.name, err)
		}
		*part.into = email.Part(string(made))
	}
	return html, text, nil
}

// of returns the mailing's body, from the cache or the database. Two concurrent misses both read
// it.
func (b *bodies) of(ctx context.Context, mailing uuid.UUID) (*body, error) {
	if found := b.use(mailing); found != nil {
		return found, nil
	}
	templates, err := b.templates.MailingTemplates(ctx, mailing)
	if err != nil {
		return nil, err
	}
	made := bind(templates)
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, there := b.ready[mailing]; !there {
		b.order = append(b.order, mailing)
	}
	b.ready[mailing] = made
	if len(b.order) > bodiesKept {
		delete(b.ready, b.order[0])
		b.order = slices.Delete(b.order, 0, 1)
	}
	return made, nil
}

func (b *bodies) use(mailing uuid.UUID) *body {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.ready[mailing]
	if last := len(b.order) - 1; found != nil && b.order[last] != mailing {
		i := slices.Index(b.order, mailing)
		b.order = append(slices.Delete(b.order, i, i+1), mailing)
	}
	return found
}

// bind parses templates that the api has parsed before. Values cannot change the result of the HTML
// check, so it runs once per mailing, and only if the checker's version differs from the api's.
func bind(t store.MailingTemplates) *body {
	if t.HTML != "" && t.CheckerVersion != int(htmlcheck.Version) {
		checked := mailmerge.CheckedHTML
		if t.Template != "" {
			checked = mailmerge.CheckedOutline
		}
		if err := htmlcheck.Check(checked(t.HTML).HTML); err != nil {
			return &body{unusable: err}
		}
	}
	made := &body{autoText: t.AutoText, files: t.Attachments}
	made.size.Store(int64(len(t.HTML) + len(t.Text)))
	if t.Template != "" {
		parsed, err := template.Read(template.Source{Subject: t.Subject, HTML: t.HTML, Text: t.Text}, t.Variables)
		if err != nil {
			return &body{unusable: fmt.Errorf("template %s: %w", t.Template, err)}
		}
		made.stored = parsed.Row(t.Fields)
		return made
	}
	place := mailmerge.Place(t.Fields)
	for _, part := range []struct {
		name, text string
		parse      func(string) (*mailmerge.Template, error)
		bound      **mailmerge.Bound
	}{
		{"html", t.HTML, mailmerge.ParseHTML, &made.html},
		{"text", t.Text, mailmerge.ParseText, &made.text},
	} {
		if part.text == "" {
			continue
		}
		parsed, err := part.parse(part.text)
		if err != nil {
			return &body{unusable: fmt.Errorf("%s: %w", part.name, err)}
		}
		bound, missing := parsed.Bind(place)
		if len(missing) > 0 {
			return &body{unusable: fmt.Errorf("%s: no column for %q", part.name, missing)}
		}
		*part.bound = bound
	}
	return made
}
