package lane

import (
	"log/slog"
	"sync"
	"time"

	"email-gateway/shared/store/internal/pg"
)

// Listener receives wake-ups on its own connection. It is a service.Service that the dispatcher's main function starts.
//
// Wake-ups that are sent while it is not connected are lost. Every new connection therefore counts as a Wake, and
// Listening reports whether there is a connection. Without one, dispatchers find new rows at each poll; rows that were
// moved to an earlier time, released or resumed wait until the next listing of all lanes.
type Listener struct {
	*pg.Subscription

	mu    sync.Mutex
	named map[int64]time.Time // lanes since Named was last called, with the earliest From
	all   bool                // a wake-up for all lanes was received
}

// NewListener returns a Listener for the database named by a postgres:// URL, which must lead to Postgres itself: LISTEN
// does not work through a pooler in transaction mode.
func NewListener(databaseURL string, log *slog.Logger) (*Listener, error) {
	l := &Listener{named: make(map[int64]time.Time)}
	subscription, err := pg.NewSubscription(databaseURL, pg.Channel{Name: Channel, About: "new emails", Received: l.received, Missed: l.missed}, log)
	if err != nil {
		return nil, err
	}
	l.Subscription = subscription
	return l, nil
}

// Named returns the lanes that wake-ups have named since its last call. all means that any lane may have new rows.
func (l *Listener) Named() (lanes []Named, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, from := range l.named {
		lanes = append(lanes, Named{ID: id, From: from})
	}
	all = l.all
	clear(l.named)
	l.all = false
	return lanes, all
}

func (l *Listener) missed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = true
}

func (l *Listener) received(payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lanes, named := namedLanes(payload)
	if !named {
		l.all = true
		return
	}
	for _, n := range lanes {
		if from := l.named[n.ID]; from.IsZero() || !n.From.IsZero() && n.From.Before(from) {
			l.named[n.ID] = n.From
		}
	}
}
