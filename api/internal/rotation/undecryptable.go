package rotation

import (
	"errors"
	"fmt"

	"email-gateway/shared/keyring"
)

// undecryptable collects values that cannot be decrypted. They must not block the others: they are skipped
// and reported at the end.
type undecryptable struct {
	first []error
	count int
}

// maxListed limits how many of them an error lists.
const maxListed = 5

// skip reports whether err concerns only the value, and then records it.
func (d *undecryptable) skip(err error) bool {
	if !errors.Is(err, keyring.ErrUndecryptable) {
		return false
	}
	if d.count++; len(d.first) < maxListed {
		d.first = append(d.first, err)
	}
	return true
}

// err returns nil if nothing was skipped.
func (d *undecryptable) err() error {
	if d.count == 0 {
		return nil
	}
	return fmt.Errorf("skipped %d values that cannot be decrypted: %w", d.count, errors.Join(d.first...))
}
