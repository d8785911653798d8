package htmlcheck

import (
	"context"
	"fmt"
)

// smallBody is the size up to which a check never waits. Such a body costs well
// under a millisecond (a few milliseconds if made to be slow), so limiting it
// would only let a few large bodies delay every small one.
const smallBody = 8 << 10

// Checker checks bodies, few large ones at a time: one of 512 KiB that was made
// to be slow takes a core for a quarter of a second and tens of megabytes, and
// a server must not do that for every connection at once.
type Checker struct {
	slots chan struct{}
}

// New returns a Checker that checks at most parallel large bodies at a time, at
// least one.
func New(parallel int) *Checker {
	return &Checker{slots: make(chan struct{}, max(parallel, 1))}
}

// Waits says whether the check of a body waits for its turn.
func Waits(html string) bool { return len(html) > smallBody && len(html) <= MaxBytes }

// CheckAll is the function CheckAll behind the limit. It returns an error that wraps
// the context's when ctx ends before a slot is free; that is no verdict.
func (c *Checker) CheckAll(ctx context.Context, html string, most int) ([]*Violation, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("check html: %w", err)
	}
	if !Waits(html) {
		return CheckAll(html, most), nil
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
		return CheckAll(html, most), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to check html: %w", ctx.Err())
	}
}
