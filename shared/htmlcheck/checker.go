package htmlcheck

import (
	"context"
	"fmt"
)

// smallBody is the size up to which a check never waits. Such a body takes well under a millisecond
// (a few milliseconds if crafted to be slow), so limiting it would only let a few large bodies
// delay every small one.
const smallBody = 8 << 10

// Checker checks bodies, with a limit for large ones: one of 512 KiB crafted to be slow takes a
// core for a quarter of a second and tens of megabytes, which a server must not spend for every
// connection at once.
type Checker struct {
	slots chan struct{}
}

// New returns a Checker that checks at most parallel large bodies concurrently, at least one.
func New(parallel int) *Checker {
	return &Checker{slots: make(chan struct{}, max(parallel, 1))}
}

// Waits reports whether the check of a body waits for a slot.
func Waits(html string) bool { return len(html) > smallBody && len(html) <= MaxBytes }

// CheckAll is the function CheckAll with the limit. It returns an error that wraps the context's if
// ctx ends before a slot is free; the body is then not checked.
func (c *Checker) CheckAll(ctx context.Context, html string, limit int) ([]*Violation, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("check html: %w", err)
	}
	if !Waits(html) {
		return CheckAll(html, limit), nil
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
		return CheckAll(html, limit), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to check html: %w", ctx.Err())
	}
}
