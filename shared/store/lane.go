package store

import (
	"log/slog"

	"email-gateway/shared/store/lane"
)

// Types of package lane.
type (
	Lane       = lane.Lane
	LaneFilter = lane.Filter
	Listener   = lane.Listener
	Lanes      = lane.Lanes
	NamedLane  = lane.Named

	lanes = lane.Store
)

// WakeChannel is lane.Channel.
const WakeChannel = lane.Channel

// ErrNoLane is lane.ErrNone.
var ErrNoLane = lane.ErrNone

// NewListener makes a Listener for the database named by a postgres:// URL, which must lead to Postgres itself: LISTEN
// does not work through a pooler in transaction mode.
func NewListener(databaseURL string, log *slog.Logger) (*Listener, error) {
	return lane.NewListener(databaseURL, log)
}
