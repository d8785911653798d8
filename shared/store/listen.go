package store

import (
	"context"
	"log/slog"
	"time"

	"github.com/lib/pq"
)

// Bounds of a Listener's attempts to connect again, and how often it makes sure that
// its connection lives: a firewall drops an idle one without telling.
const (
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 5 * time.Second
	listenPing     = 30 * time.Second
)

// Listener hears Wake, on a connection of its own. It is a service.Service that the
// dispatcher's main function starts.
//
// What is said while it is not connected is lost: whoever listens must look by
// himself now and then. Every new connection counts as a Wake for this reason.
type Listener struct {
	dsn   string
	log   *slog.Logger
	woken chan struct{}

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
	return &Listener{dsn: dsn, log: log, woken: make(chan struct{}, 1), done: make(chan struct{})}, nil
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
	listener := pq.NewListener(l.dsn, firstReconnect, lastReconnect, l.report)
	defer listener.Close() //nolint:errcheck // it is closed already, or goes away now
	// Both of these wait for a connection, so neither may hold up the loop below;
	// closing the listener ends them.
	go func() { _ = listener.Listen(WakeChannel) }()
	go keepAlive(ctx, listener)
	for {
		select {
		case <-ctx.Done():
			return
		case <-listener.Notify: // nil after a new connection
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
		l.log.Warn("not listening for new emails: polling instead", "error", err)
	case pq.ListenerEventConnected, pq.ListenerEventReconnected:
		l.log.Info("listening for new emails")
	}
}
