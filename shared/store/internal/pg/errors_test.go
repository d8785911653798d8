package pg_test

import (
	"errors"
	"testing"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/shared/store/internal/pg"
)

// A statement that the server ended with its connection is no refusal of its data, and a write may have been applied.
func TestTranslate_ConnectionEnded(t *testing.T) {
	t.Parallel()
	for _, code := range []pqerror.Code{"25P03", "25P04", "57P01", "57P02", "08006"} {
		err := error(&pq.Error{Code: code})
		if !errors.Is(pg.Translate(err), pg.ErrUnavailable) || !errors.Is(pg.WriteError(err), pg.ErrUnknownOutcome) || pg.IsRefusal(err) {
			t.Errorf("%s: read %v, write %v, refusal %t", code, pg.Translate(err), pg.WriteError(err), pg.IsRefusal(err))
		}
	}
}
