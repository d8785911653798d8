package service

import (
	"log/slog"
	"time"
)

// troubleInterval is how often a loop logs that it still fails. During a database outage a dozen
// loops that each log once a second would hide the relevant line.
const troubleInterval = 30 * time.Second

// trouble logs a loop's consecutive failures: the first, one per troubleInterval, and the recovery.
type trouble struct {
	log    *slog.Logger
	since  time.Time // of the first failure
	told   time.Time
	rounds int // consecutive failures; 0 = none
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
		t.log.Info("rounds succeed again", "interrupted", time.Since(t.since).Round(time.Millisecond).String(), "rounds", t.rounds, "error", t.last)
		t.rounds = 0
	}
}
