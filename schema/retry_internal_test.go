package schema

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/pressly/goose/v3"
)

// The minute of a migration starts with its first lock timeout, regardless of earlier migrations.
func TestRetry(t *testing.T) {
	t.Parallel()
	var r retry
	start := time.Now()
	for _, attempt := range []struct {
		name  string
		err   error
		after time.Duration
		want  bool
	}{
		{"first", lost(3), time.Hour, true},
		{"within the minute", lost(3), time.Hour + busyTimeout - 1, true},
		{"after the minute", lost(3), time.Hour + busyTimeout, false},
		{"another migration", lost(4), time.Hour + busyTimeout, true},
		{"within its minute", lost(4), time.Hour + 2*busyTimeout - 1, true},
		{"another error", errors.New("syntax"), time.Hour + busyTimeout, false},
	} {
		if got := r.again(attempt.err, start.Add(attempt.after)); got != attempt.want {
			t.Errorf("%s: again returns %t, want %t", attempt.name, got, attempt.want)
		}
	}
}

func lost(version int64) error {
	return fmt.Errorf("migrate up: %w", &goose.PartialError{
		Failed: &goose.MigrationResult{Source: &goose.Source{Version: version}},
		Err:    &pq.Error{Code: lockNotAvailable},
	})
}
