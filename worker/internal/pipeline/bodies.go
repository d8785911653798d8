package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"

	"github.com/google/uuid"
	"golang.org/x/sync/singleflight"

	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/store"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/template"
	"email-gateway/shared/unsubscribe"
)

// Templates loads a mailing's templates; store.ErrNotFound if there is no such mailing.
type Templates interface {
	MailingTemplates(ctx context.Context, mailing uuid.UUID) (mailingstore.Templates, error)
}

// Links builds unsubscribe links.
type Links struct {
	Keys      unsubscribe.Keys
	PublicURL string
}

// missing returns the name of the setting without which no link can be made, or "".
func (l Links) missing() string {
	switch {
	case l.Keys.Empty():
		return "UNSUBSCRIBE_KEY"
	case l.PublicURL == "":
		return "PUBLIC_URL"
	}
	return ""
}

// link returns the link of the email's recipient for the mailing.
func (l Links) link(a *attempt, mailing uuid.UUID) string {
	return unsubscribe.URL(l.PublicURL, l.Keys.Seal(unsubscribe.Link{Company: a.row.CompanyID, Mailing: mailing, Address: a.job.To}))
}

// bodyLimits bound the memory of parsed templates. One company may have 20 running mailings. Each needs at most 6 MiB, with
// plain templates of 1 MiB and 20,000 tags, and usually some KiB.
var bodyLimits = template.CacheLimits{All: 32 << 20, PerCompany: 16 << 20}

// bodies renders the emails of mailings. It is safe for concurrent use.
type bodies struct {
	templates Templates
	ready     *template.Cache[uuid.UUID, *body]
	reads     singleflight.Group // by mailing
	// parsing limits how many templates are parsed at once: a parse occupies a processor, and several times the memory
	// of its result.
	parsing chan struct{}
}

// body is one mailing's parsed templates, bound to the order of its columns.
type body struct {
	html, text *mailmerge.Bound // one may be nil
	stored     *template.Row    // a stored template instead of them; nil = none
	memory     int              // bytes
	autoText   bool
	*bodySize  // a separate allocation: attempts keep it until their result is recorded, and must not keep the parsed templates alive
	// unusable is the error that keeps the templates from being used, or nil.
	unusable error
}

// bodySize is what an email of the mailing needs room for.
type bodySize struct {
	files int          // attachments of every email
	size  atomic.Int64 // estimated bytes of the next email's body; at first those of the templates
}

func newBodies(templates Templates) *bodies {
	return &bodies{
		templates: templates, ready: template.NewCache[uuid.UUID, *body](bodyLimits), parsing: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
}

// addLink adds the unsubscribe link to the email of a mailing.
func (p *Pipeline) addLink(ctx context.Context, log *slog.Logger, a *attempt) (done bool, err error) {
	mailing, ok := a.unsubscribesFrom()
	if !ok {
		return false, nil
	}
	if setting := p.Links.missing(); setting != "" {
		return true, p.withoutLink(ctx, log, a, setting)
	}
	a.link = p.Links.link(a, mailing)
	return false, nil
}

// withoutLink postpones a mailing's email, whose link the worker cannot make. Its settings are not required without RABBITMQ_URL,
// because an installation without RabbitMQ has no mailings; one with RabbitMQ may have a worker without them.
func (p *Pipeline) withoutLink(ctx context.Context, log *slog.Logger, a *attempt, setting string) error {
	if omitted, ok := p.waiting.Allow(setting); ok {
		log.Warn("unsubscribe links need a setting: emails of mailings wait for it", "setting", setting, "delay", linkDelay.String(), "omitted", omitted)
	}
	return p.postponer.postpone(ctx, a, linkDelay)
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
		a.row.Fields, a.template = nil, nil // the rendered body has them
	case a.row.LargeBody > 0:
		a.html, a.text, err = p.Loader.ReadBody(ctx, a.row.ID)
	}
	return err
}

// find sets the attempt's mailing. It returns database errors; an email that cannot be rendered gets the reason in
// a.unrenderable.
func (b *bodies) find(ctx context.Context, a *attempt) error {
	made, err := b.body(ctx, a.row.CompanyID, a.row.MailingID.UUID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		made = unusable(errors.New("the mailing's templates have been deleted"))
	case err != nil:
		return err
	}
	a.template, a.shared, a.unrenderable = made, made.bodySize, made.unusable
	return nil
}

// render sets the attempt's body from the mailing.
func (b *bodies) render(a *attempt) {
	if a.unrenderable != nil {
		return
	}
	a.html, a.text, a.unrenderable = a.template.fill(a, a.link)
	a.autoText = a.template.autoText
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

// body returns the mailing's body, from the cache or the database. Concurrent misses share one read.
func (b *bodies) body(ctx context.Context, company, mailing uuid.UUID) (*body, error) {
	if found, ok := b.ready.Get(mailing); ok {
		return found, nil
	}
	read, err, _ := b.reads.Do(mailing.String(), func() (any, error) {
		if found, ok := b.ready.Get(mailing); ok { // another read has just ended
			return found, nil
		}
		templates, err := b.templates.MailingTemplates(context.WithoutCancel(ctx), mailing) // others wait for it too
		if err != nil {
			return nil, err
		}
		b.parsing <- struct{}{}
		defer func() { <-b.parsing }()
		made := bind(templates)
		b.ready.Put(company, mailing, made, made.memory)
		return made, nil
	})
	made, _ := read.(*body)
	return made, err
}

// unusable is the body of a mailing that cannot be rendered.
func unusable(err error) *body { return &body{bodySize: &bodySize{}, memory: 1 << 10, unusable: err} }

// bind parses templates that the api has parsed before. Values cannot change the result of the HTML
// check, so it runs once per mailing, and only if the checker's version differs from the api's.
func bind(t mailingstore.Templates) *body {
	if t.HTML != "" && t.CheckerVersion != int(htmlcheck.Version) {
		checked := mailmerge.CheckedHTML
		if t.Template != "" {
			checked = mailmerge.CheckedOutline
		}
		if err := htmlcheck.Check(checked(t.HTML).HTML); err != nil {
			return unusable(err)
		}
	}
	made := &body{bodySize: &bodySize{files: t.Attachments}, autoText: t.AutoText, memory: 1<<10 + len(t.HTML) + len(t.Text)}
	made.size.Store(int64(len(t.HTML) + len(t.Text)))
	if t.Template != "" {
		parsed, err := template.Read(template.Source{Subject: t.Subject, HTML: t.HTML, Text: t.Text}, t.Variables)
		if err != nil {
			return unusable(fmt.Errorf("template %s: %w", t.Template, err))
		}
		made.stored, made.memory = parsed.Row(t.Fields), parsed.Size()
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
			return unusable(fmt.Errorf("%s: %w", part.name, err))
		}
		bound, missing := parsed.Bind(place)
		if len(missing) > 0 {
			return unusable(fmt.Errorf("%s: no column for %q", part.name, missing))
		}
		*part.bound = bound
		made.memory += bound.Memory()
	}
	return made
}
