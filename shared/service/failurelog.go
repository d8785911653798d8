package service

import (
	"log/slog"
	"time"
)

// failureLogInterval is how often a loop logs that it still fails. During a database outage a dozen
// loops that each log once a second would hide the relevant line.
const failureLogInterval = 30 * time.Second

// failureLog logs a loop's consecutive failures: the first, one per failureLogInterval, and the recovery.
type failureLog struct {
	log      *slog.Logger
	since    time.Time // of the first failure
	loggedAt time.Time
	rounds   int // consecutive failures; 0 = none
	last     error
}

func (f *failureLog) failed(err error) {
	now := time.Now()
	if f.rounds == 0 {
		f.since = now
	}
	f.rounds++
	f.last = err
	if f.rounds > 1 && now.Sub(f.loggedAt) < failureLogInterval {
		return
	}
	f.loggedAt = now
	f.log.Error("round failed", "error", err, "rounds", f.rounds)
}

func (f *failureLog) recovered() {
	if f.rounds > 0 {
		f.log.Info("rounds succeed again", "interrupted", time.Since(f.since).Round(time.Millisecond).String(), "rounds", f.rounds, "error", f.last)
		f.rounds = 0
	}
}
