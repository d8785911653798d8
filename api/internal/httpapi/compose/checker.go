// Package compose has the parts from which sending, mailings and templates make emails: checks of
// html, rendering of templates, attachments and times.
package compose

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/companylimit"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/api/internal/templates"
	"email-gateway/shared/draft"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/plaintext"
	"email-gateway/shared/rules"
)

// Checker checks html, and limits the checks so that one company leaves a turn for others.
type Checker struct {
	html  *htmlcheck.Checker
	turns *companylimit.Limiter
}

// NewChecker allows as many concurrent checks of large bodies as there are processors, and one
// more for another company.
func NewChecker(processors int) *Checker {
	return &Checker{html: htmlcheck.New(processors + 1), turns: companylimit.New(int64(processors)+1, int64(processors))}
}

// NewLibrary returns the library of the templates in s, whose work waits for a slot of the company.
func (c *Checker) NewLibrary(s templates.Finder) *templates.Library {
	return templates.NewLibrary(s, func(ctx context.Context, company uuid.UUID, work func() error) error {
		return inTurn(ctx, c.turns, company, func(context.Context) error { return work() })
	})
}

// htmlWait limits how long a large body waits to be checked.
const htmlWait = 10 * time.Second

// checkHTML runs a check within htmlWait. Large bodies of one company are checked one after
// the other: one of 512 KiB can take a quarter of a second.
func (c *Checker) checkHTML(ctx context.Context, company uuid.UUID, html string, check func(context.Context) error) error {
	if htmlcheck.Waits(html) {
		return inTurn(ctx, c.turns, company, check)
	}
	ctx, cancel := context.WithTimeout(ctx, htmlWait)
	defer cancel()
	err := check(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return problem.Busy
	}
	return err
}

// inTurn runs work that takes a processor for more than a few milliseconds, when the company has a turn.
func inTurn(ctx context.Context, turns *companylimit.Limiter, company uuid.UUID, work func(context.Context) error) error {
	client := ctx
	ctx, cancel := context.WithTimeout(ctx, htmlWait)
	defer cancel()
	release, err := turns.Enter(ctx, company)
	switch {
	case err != nil && client.Err() != nil:
		return client.Err() // the client disconnected
	case errors.Is(err, companylimit.ErrCompanyLimit):
		return slots.ErrCompanyBusy
	case err != nil:
		return problem.Busy
	}
	defer release()
	if err = work(ctx); errors.Is(err, context.DeadlineExceeded) {
		return problem.Busy
	}
	return err
}

// CheckDraft checks the html of an email. Faults are added to d; the error is not about the html.
func (c *Checker) CheckDraft(ctx context.Context, company uuid.UUID, d *draft.Draft) error {
	return c.checkHTML(ctx, company, d.Email.HTML, func(ctx context.Context) error { return d.CheckHTML(ctx, c.html) })
}

// CheckTemplate checks the field html of a mailing or of a stored template. Faults are added to f; the error is not
// about the template.
func (c *Checker) CheckTemplate(ctx context.Context, company uuid.UUID, body mailmerge.Checked, f *rules.Faults) error {
	return c.checkHTML(ctx, company, body.HTML, func(ctx context.Context) error { return draft.CheckHTML(ctx, c.html, body, f) })
}

// TextOf is the text part that the worker makes from html.
func (c *Checker) TextOf(ctx context.Context, company uuid.UUID, html string) (text string, err error) {
	err = c.checkHTML(ctx, company, html, func(context.Context) error {
		text = plaintext.FromHTML(html)
		return nil
	})
	return text, err
}
