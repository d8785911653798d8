package privacy

import (
	"context"
	"slices"
	"time"

	"email-gateway/shared/store/person"
)

// awaitWriters waits until the currently open write transactions have ended. Only then are all
// rows visible that were written before the recipients were deleted.
func (e *erasure) awaitWriters(ctx context.Context, deadline time.Time) error {
	open, err := e.People.Writers(ctx)
	for {
		e.done.Writing = len(open)
		if err != nil || len(open) == 0 || time.Now().After(deadline) {
			return err
		}
		if err := pause(ctx, askEvery/10); err != nil {
			return err
		}
		var current []person.Writer
		current, err = e.People.Writers(ctx)
		open = stillOpen(open, current)
	}
}

// stillOpen returns the writers that are also current. When one is missing that was not prepared, it
// has ended or was prepared, which changes its name: so each prepared one may be it.
func stillOpen(open, current []person.Writer) []person.Writer {
	missing := slices.ContainsFunc(open, func(w person.Writer) bool { return !w.Prepared && !slices.Contains(current, w) })
	return slices.DeleteFunc(slices.Clone(current), func(w person.Writer) bool {
		return !slices.Contains(open, w) && (!missing || !w.Prepared)
	})
}
