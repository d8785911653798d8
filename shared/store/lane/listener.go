package lane

import (
	"log/slog"
	"sync"
	"time"

	"email-gateway/shared/store/internal/pg"
)

// Listener hears Wake, on a connection of its own. It is a service.Service that the
// dispatcher's main function starts.
//
// What is sent while it is not connected is lost. Every new connection counts as a Wake for
// this reason, and Listening reports whether there is a connection. New rows are found meanwhile, since dispatchers look for
// them at each poll; rows that were moved to an earlier time, released or resumed wait until then, when every lane is
// listed.
type Listener struct {
	*pg.Subscription

	mu    sync.Mutex
	named map[int64]time.Time // lanes since Named was last called, with the earliest From
	all   bool                // a Wake was among them
}

// NewListener makes a Listener for the database named by a postgres:// URL, which
// must lead to Postgres itself: LISTEN does not work through a pooler that pools
// transactions.
func NewListener(databaseURL string, log *slog.Logger) (*Listener, error) {
	l := &Listener{named: make(map[int64]time.Time)}
	subscription, err := pg.NewSubscription(databaseURL, pg.Channel{Name: Channel, About: "new emails", Received: l.received, Missed: l.missed}, log)
	if err != nil {
		return nil, err
	}
	l.Subscription = subscription
	return l, nil
}

// Named returns the lanes that were named since it was last called; all means that any lane
// may hold something new.
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
