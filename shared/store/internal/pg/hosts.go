package pg

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
	"time"

	"github.com/lib/pq"
)

// headStart is how long a server has to answer before the next one is dialed too. All servers of a URL with three hosts
// are thus dialed within Confirm's 1.5 s, though connect_timeout gives each of them 5 s.
const headStart = 500 * time.Millisecond

// hosts connects to one of several servers, beginning with the one that it connected to last. lib/pq would wait for
// connect_timeout at each host listed before that one, and callers with less time would never reach a host behind a
// silent one.
type hosts struct {
	servers []*pq.Connector
	latest  atomic.Int64 // index of the server of the last connection
}

func newHosts(dsn string, d pq.Dialer) (*hosts, error) {
	all, err := pq.NewConfig(dsn)
	if err != nil {
		return nil, err
	}
	h := &hosts{}
	one := all.Clone()
	one.Multi = nil
	configs := []pq.Config{one}
	for _, m := range all.Multi {
		next := one.Clone()
		next.Host, next.Hostaddr, next.Port = m.Host, m.Hostaddr, m.Port
		configs = append(configs, next)
	}
	for _, config := range configs {
		server, err := pq.NewConnectorConfig(config)
		if err != nil {
			return nil, err
		}
		server.Dialer(d)
		h.servers = append(h.servers, server)
	}
	return h, nil
}

// Driver returns lib/pq's driver.
func (h *hosts) Driver() driver.Driver { return h.servers[0].Driver() }

type connected struct {
	server int
	conn   driver.Conn
	err    error
}

// Connect returns the first connection that is made, or a *connectError. If a server answers after ctx has ended, the
// next Connect begins with it.
func (h *hosts) Connect(ctx context.Context) (driver.Conn, error) {
	if len(h.servers) == 1 {
		conn, err := h.servers[0].Connect(ctx)
		if err != nil {
			return nil, &connectError{[]error{err}}
		}
		return conn, nil
	}
	results := make(chan connected, len(h.servers))
	first, begun := int(h.latest.Load()), 0
	var errs []error
	for len(errs) < len(h.servers) {
		var next <-chan time.Time
		if begun < len(h.servers) {
			server := (first + begun) % len(h.servers)
			// lib/pq ends a handshake after connect_timeout, and not when its context ends.
			go func() {
				conn, err := h.servers[server].Connect(context.WithoutCancel(ctx))
				results <- connected{server, conn, err}
			}()
			begun++
			next = time.After(headStart)
		}
		select {
		case r := <-results:
			if r.err == nil {
				h.latest.Store(int64(r.server))
				go h.discard(results, begun-len(errs)-1, false)
				return r.conn, nil
			}
			errs = append(errs, r.err)
		case <-next:
		case <-ctx.Done():
			go h.discard(results, begun-len(errs), true)
			return nil, &connectError{append(errs, ctx.Err())}
		}
	}
	return nil, &connectError{errs}
}

// discard closes connections that are not needed. remember: the next Connect begins with a server that answered.
func (h *hosts) discard(results <-chan connected, n int, remember bool) {
	for range n {
		r := <-results
		if r.err != nil {
			continue
		}
		if remember {
			h.latest.Store(int64(r.server))
		}
		_ = r.conn.Close()
	}
}
