package pg

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

// All connections are replaced at once when a server refuses a write, and rarely while new ones are refused too.
func TestConnector_ReplacesConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c connector
		refused := error(&pq.Error{Code: pqerror.ReadOnlySQLTransaction})
		wait := func(pause time.Duration) {
			timer := time.NewTimer(pause)
			<-timer.C
		}
		refuse := func(generation int64) error {
			s := session{connector: &c, generation: generation}
			return s.failed(refused)
		}
		if err := refuse(0); !errors.Is(err, refused) || c.generation.Load() != 1 {
			t.Errorf("the first refusal: %v, generation %d", err, c.generation.Load())
		}
		wait(2 * minReplacePause)
		if _ = refuse(0); c.generation.Load() != 1 {
			t.Error("a refusal on a replaced connection replaced the others")
		}
		for end := time.Now().Add(time.Hour); time.Now().Before(end); wait(50 * time.Millisecond) {
			_ = refuse(c.generation.Load())
		}
		if got := c.generation.Load(); got < 300 || got > 370 {
			t.Errorf("connections were replaced %d times in an hour, want every 10 s", got)
		}
		wait(time.Minute)
		before := c.generation.Load()
		_ = refuse(c.generation.Load())
		wait(minReplacePause)
		_ = refuse(c.generation.Load())
		if got := c.generation.Load() - before; got != 2 {
			t.Errorf("after a minute without a refusal connections were replaced %d times within a second, want 2", got)
		}
	})
}
