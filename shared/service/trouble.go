package service

import (
	"log/slog"
	"time"
)

// troubleInterval is how often a loop says that it still fails. A dozen loops that each
// fail once a second while Postgres is away would drown the line that says why.
const troubleInterval = 30 * time.Second

// trouble is a loop's failures in a row, told when they begin, now and then while they
// last, and when they end.
type trouble struct {
	log    *slog.Logger
	since  time.Time // of the first of them
	told   time.Time
	rounds int // how many there were; 0 = all is well
	last   error
}

func (t *trouble) more(err error) {
	now := time.Now()
	if t.rounds == 0 {
		t.since = now
	}
	t.rounds++
	t.last = err
	if t.rounds > 1 && now.Sub(t.told) < troubleInterval {
		return
	}
	t.told = now
	t.log.Error("round failed", "error", err, "rounds", t.rounds)
}

func (t *trouble) end() {
	if t.rounds > 0 {
		t.log.Info("rounds go on", "interrupted", time.Since(t.since).Round(time.Millisecond).String(), "rounds", t.rounds, "error", t.last)
		t.rounds = 0
	}
}
