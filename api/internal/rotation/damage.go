package rotation

import (
	"errors"
	"fmt"

	"email-gateway/api/internal/keyring"
)

// damage are values that cannot be opened. One of them must not keep the others from being
// sealed anew: it is passed by, and told at the end.
type damage struct {
	first []error
	count int
}

// mostTold is how many of them an error names.
const mostTold = 5

// passes says whether err is about the value alone, and then remembers it.
func (d *damage) passes(err error) bool {
	if !errors.Is(err, keyring.ErrSealed) {
		return false
	}
	if d.count++; len(d.first) < mostTold {
		d.first = append(d.first, err)
	}
	return true
}

// err is nil without damage.
func (d *damage) err() error {
	if d.count == 0 {
		return nil
	}
	return fmt.Errorf("values that cannot be opened, %d in all, were passed by: %w", d.count, errors.Join(d.first...))
}
