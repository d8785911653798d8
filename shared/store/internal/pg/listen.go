package pg

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"

	"email-gateway/shared/service"
)

// Minimum and maximum time between a Subscription's attempts to reconnect, and the interval of its pings: a firewall
// may drop an idle connection silently.
const (
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 5 * time.Second
	listenPing     = 10 * time.Second
)

// Channel is what a Subscription listens to.
type Channel struct {
	Name  string
	About string // subject of the notifications, for the log, such as "new emails"
	// Received gets the payload of each notification. Missed is called when notifications may have been lost: when the
	// connection breaks, and when a new one is made. nil = the caller needs only Woken.
	Received func(payload string)
	Missed   func()
}

// Subscription listens to a channel of NOTIFY on its own connection. It is a service.Service.
//
// Notifications that are sent while it is not connected are lost, so it treats every new connection as a notification.
// A connection that the network has dropped silently is detected listenPing + answerTime (15 s) after its last byte.
type Subscription struct {
	dsn     string
	log     *slog.Logger
	channel Channel
	woken   chan struct{}
	pool    *DB // see Follow

	mu         sync.Mutex
	conn       net.Conn // the latest
	connected  bool
	subscribed bool // LISTEN has succeeded: after a new connection lib/pq repeats it before it reports the connection

	failed atomic.Bool // it is logged that the first connection cannot be made, or it was made

	cancel context.CancelFunc
	done   chan struct{}
}

// NewSubscription returns a Subscription for the database named by a postgres:// URL, which must lead to Postgres itself:
// LISTEN does not work through a pooler in transaction mode. If the URL has no target_session_attrs, the Subscription connects
// only to a server that accepts writes: nothing is notified on another one.
func NewSubscription(databaseURL string, channel Channel, log *slog.Logger) (*Subscription, error) {
	dsn, err := DataSource(databaseURL, Options{})
	if err != nil {
		return nil, err
	}
	if !strings.Contains(dsn, "target_session_attrs=") {
		dsn += "&target_session_attrs=read-write" // DataSource has added other settings
	}
	if channel.Received == nil {
		channel.Received = func(string) {}
	}
	if channel.Missed == nil {
		channel.Missed = func() {}
	}
	return &Subscription{dsn: dsn, log: log, channel: channel, woken: make(chan struct{}, 1), done: make(chan struct{})}, nil
}

// Follow makes the Subscription connect again when the connections of a pool are replaced because a server refuses writes. The
// Subscription itself writes nothing, and would listen to a server that was replaced and runs on. Call it before Start.
func (s *Subscription) Follow(pool *DB) { s.pool = pool }

// Listening reports whether a notification would be received now.
func (s *Subscription) Listening() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connected && s.subscribed
}

// update changes connected or subscribed. It logs when listening begins, and reports that notifications sent before are
// lost.
func (s *Subscription) update(change func()) {
	s.mu.Lock()
	before := s.connected && s.subscribed
	change()
	begins := s.connected && s.subscribed && !before
	s.mu.Unlock()
	s.channel.Missed()
	if begins {
		s.log.Info("listening on a Postgres channel", "about", s.channel.About)
		s.wake()
	}
}

func (s *Subscription) wake() {
	select {
	case s.woken <- struct{}{}:
	default: // a value is pending already
	}
}

// Woken returns a channel that receives one value for any number of notifications since the last receive.
func (s *Subscription) Woken() <-chan struct{} { return s.woken }

// Start connects in the background.
func (s *Subscription) Start(ctx context.Context, _ func(error)) error {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go s.run(ctx)
	return nil
}

// Stop closes the connection.
func (s *Subscription) Stop(ctx context.Context) error {
	s.cancel()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Subscription) run(ctx context.Context) {
	defer close(s.done)
	// A ping waits for its answer, and closing the listener waits for the ping. The dialer gives up a silent server;
	// otherwise a stop would last as long as TCP retransmits.
	listener := pq.NewDialListener(dialer{silence: listenPing + answerTime, dialed: s.dialed}, s.dsn, firstReconnect, lastReconnect, s.report)
	defer listener.Close() //nolint:errcheck // it is closed already, or goes away now
	// Both of these wait for a connection, so they must not block the loop below. Closing the listener ends them.
	go s.subscribe(ctx, listener)
	go s.keepAlive(ctx, listener)
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-listener.Notify: // nil after a new connection
			if n == nil {
				s.channel.Missed()
			} else {
				s.channel.Received(n.Extra)
			}
			s.wake()
		}
	}
}

// subscribe repeats LISTEN until it succeeds: with target_session_attrs=any, a hot standby refuses it until it is
// promoted, and lib/pq itself repeats only a LISTEN that has succeeded. Listen also returns nil if the connection
// breaks meanwhile; lib/pq then repeats the LISTEN, and Ping fails until it has.
func (s *Subscription) subscribe(ctx context.Context, listener *pq.Listener) {
	pause := firstReconnect
	for {
		err := listener.Listen(s.channel.Name)
		if err == nil || errors.Is(err, pq.ErrChannelAlreadyOpen) {
			err = listener.Ping()
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			s.update(func() { s.subscribed = true })
			return
		case pause == firstReconnect: // logged once
			s.logPolling(err)
		}
		if service.Pause(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, lastReconnect)
	}
}

func (s *Subscription) logPolling(err error) {
	s.log.Warn("not listening on a Postgres channel: polling instead", "about", s.channel.About, "error", err)
}

func (s *Subscription) dialed(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn
}

// keepAlive makes the listener reconnect: after a failed ping, or when its connection is closed here.
func (s *Subscription) keepAlive(ctx context.Context, listener *pq.Listener) {
	ticker := time.NewTicker(listenPing)
	defer ticker.Stop()
	generation := s.generation()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if now := s.generation(); now != generation {
				generation = now
				s.disconnect()
			}
			_ = listener.Ping()
		}
	}
}

func (s *Subscription) generation() int64 {
	if s.pool == nil {
		return 0
	}
	return s.pool.connector.generation.Load()
}

func (s *Subscription) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close() // it may be closed already
	}
}

func (s *Subscription) report(event pq.ListenerEventType, err error) {
	switch event {
	case pq.ListenerEventDisconnected:
		s.update(func() { s.connected = false })
		s.logPolling(err)
	case pq.ListenerEventConnectionAttemptFailed:
		if s.failed.CompareAndSwap(false, true) { // logged once
			s.logPolling(err)
		}
	case pq.ListenerEventConnected, pq.ListenerEventReconnected:
		s.failed.Store(true) // a failure after this one follows ListenerEventDisconnected
		s.update(func() { s.connected = true })
	}
}
