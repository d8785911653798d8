package store

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/lib/pq"
)

// Bounds of a Listener's attempts to connect again, and how often it makes sure that
// its connection lives: a firewall drops an idle one without telling.
const (
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 5 * time.Second
	listenPing     = 10 * time.Second
)

// Listener hears Wake, on a connection of its own. It is a service.Service that the
// dispatcher's main function starts.
//
// What is sent while it is not connected is lost. Every new connection counts as a Wake for
// this reason, and Listening reports whether there is one. A connection that a network has silently dropped counts as one until
// listenPing + answerTime (15 s) after its last byte. New rows are found meanwhile, since dispatchers look for
// them at each poll; rows that were moved to an earlier time, released or resumed wait until then, when every lane is
// listed.
type Listener struct {
	dsn   string
	log   *slog.Logger
	woken chan struct{}

	mu        sync.Mutex
	listening bool
	named     map[int64]struct{} // lanes since Named was last called
	all       bool               // a Wake was among them

	cancel context.CancelFunc
	done   chan struct{}
}

// NewListener makes a Listener for the database named by a postgres:// URL, which
// must lead to Postgres itself: a pooler that hands a session on between
// transactions loses its LISTEN.
func NewListener(databaseURL string, log *slog.Logger) (*Listener, error) {
	dsn, err := dataSource(databaseURL, Options{})
	if err != nil {
		return nil, err
	}
	return &Listener{dsn: dsn, log: log, woken: make(chan struct{}, 1), named: make(map[int64]struct{}), done: make(chan struct{})}, nil
}

// Named returns the lanes that were named since it was last called; all means that any lane
// may hold something new.
func (l *Listener) Named() (lanes []int64, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.named {
		lanes = append(lanes, id)
	}
	all = l.all
	clear(l.named)
	l.all = false
	return lanes, all
}

// Listening reports whether a Wake would be heard now.
func (l *Listener) Listening() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listening
}

func (l *Listener) connected(now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listening = now
	l.all = true // what was sent before is lost
}

// heard takes a notification; nil stands for a new connection.
func (l *Listener) heard(n *pq.Notification) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n == nil {
		l.all = true
		return
	}
	lanes, named := namedLanes(n.Extra)
	if !named {
		l.all = true
		return
	}
	for _, id := range lanes {
		l.named[id] = struct{}{}
	}
}

// Woken yields once for any number of Wakes since it last did.
func (l *Listener) Woken() <-chan struct{} { return l.woken }

// Start connects in the background.
func (l *Listener) Start(ctx context.Context, _ func(error)) error {
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go l.run(ctx)
	return nil
}

// Stop ends the connection.
func (l *Listener) Stop(ctx context.Context) error {
	l.cancel()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Listener) run(ctx context.Context) {
	defer close(l.done)
	// A ping waits for its answer, and closing the listener waits for the ping: a server that is
	// silent is given up, else a stop would last as long as TCP repeats its packets.
	listener := pq.NewDialListener(dialer{silence: listenPing + answerTime}, l.dsn, firstReconnect, lastReconnect, l.report)
	defer listener.Close() //nolint:errcheck // it is closed already, or goes away now
	// Both of these wait for a connection, so neither may hold up the loop below;
	// closing the listener ends them.
	go func() {
		if listener.Listen(WakeChannel) == nil {
			l.connected(true)
		}
	}()
	go keepAlive(ctx, listener)
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-listener.Notify: // nil after a new connection
			l.heard(n)
			select {
			case l.woken <- struct{}{}:
			default: // one Wake is waiting already
			}
		}
	}
}

func keepAlive(ctx context.Context, listener *pq.Listener) {
	ticker := time.NewTicker(listenPing)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = listener.Ping() // a failure makes the listener connect again
		}
	}
}

func (l *Listener) report(event pq.ListenerEventType, err error) {
	switch event {
	case pq.ListenerEventDisconnected:
		l.connected(false)
		l.log.Warn("not listening for new emails: polling instead", "error", err)
	case pq.ListenerEventReconnected: // it listens to the same channel again
		l.connected(true)
		l.log.Info("listening for new emails")
	case pq.ListenerEventConnected: // and begins to listen
		l.log.Info("listening for new emails")
	}
}
