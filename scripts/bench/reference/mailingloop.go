package reference

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/load"
	"email-gateway/scripts/local/programs"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/unsubscribe"
)

// MailingSubject and MailingHTML are the templates of the measured mailing. Their fields are
// columns of load.WriteSheet.
const MailingSubject = "Olá, {{nome}}: sua fatura saiu"

// MailingHTML is the html of the measured mailing.
func MailingHTML() string {
	return strings.NewReplacer(
		"João Assunção", "{{nome}}", environment.Placeholder, "{{fatura}}",
		"</body>", `<p>{{cidade}}</p><p><a href="{{unsubscribe_url}}">Sair da lista</a></p></body>`,
	).Replace(environment.EmailHTML)
}

// MailingLoop sends the emails of a mailing without a gateway: it renders the templates for each
// row, creates the row's unsubscribe link and calls SendEmail.
type MailingLoop struct {
	ses              *bareClient
	subject, html    *mailmerge.Bound
	links            unsubscribe.Keys
	company, mailing uuid.UUID
}

// NewMailingLoop parses the templates.
func NewMailingLoop(endpoint string, concurrency int) (*MailingLoop, error) {
	l := &MailingLoop{company: uuid.New(), mailing: uuid.New()}
	var err error
	if l.ses, err = NewBareClient(endpoint, concurrency); err != nil {
		return nil, err
	}
	if err := l.links.UnmarshalText([]byte(programs.Secret())); err != nil {
		return nil, fmt.Errorf("make a key for links: %w", err)
	}
	subject, err := mailmerge.ParseSubject(MailingSubject)
	if err != nil {
		return nil, fmt.Errorf("parse subject: %w", err)
	}
	html, err := mailmerge.ParseHTML(MailingHTML())
	if err != nil {
		return nil, fmt.Errorf("parse html: %w", err)
	}
	place := mailmerge.Place([]string{"cidade", "fatura"})
	for _, part := range []struct {
		template *mailmerge.Template
		bound    **mailmerge.Bound
	}{{subject, &l.subject}, {html, &l.html}} {
		var missing []string
		if *part.bound, missing = part.template.Bind(place); len(missing) > 0 {
			return nil, fmt.Errorf("bind templates: no column for %q", missing)
		}
	}
	return l, nil
}

// Run sends that number of rows and returns the rate per second.
func (l *MailingLoop) Run(ctx context.Context, rows int) (float64, error) {
	return load.MeasureRate(l.ses.concurrency, rows, func(row int64) error { return l.send(ctx, row) })
}

// send sends the email of one row of load.WriteSheet.
func (l *MailingLoop) send(ctx context.Context, row int64) error {
	to := load.SheetAddress(row)
	link := unsubscribe.URL("https://mail.gateway.example", l.links.Seal(unsubscribe.Link{Company: l.company, Mailing: l.mailing, Address: to}))
	values := mailmerge.Values(to, "", load.SheetName, link, []string{load.SheetCity, load.SheetInvoice(row)})
	subject, err := l.subject.AppendTo(nil, values)
	if err != nil {
		return fmt.Errorf("render subject: %w", err)
	}
	html, err := l.html.AppendTo(nil, values)
	if err != nil {
		return fmt.Errorf("render html: %w", err)
	}
	return l.ses.deliver(ctx, to, string(subject), string(html), unsubscribe.Headers(link))
}
