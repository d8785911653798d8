package pg

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

// crowdedTime is how long a pool stays at its open connections after the server refused another one. Each refusal costs a
// connection attempt, and statements take milliseconds.
const crowdedTime = 5 * time.Second

// FewestConns is the least number of connections to which a pool is limited. A caller that has a connection and needs another one
// would wait for itself in a pool of one, and two of them for each other in a pool of two: a dispatcher has two loops whose
// transactions need further connections.
const FewestConns = 4

// crowd limits a pool to the connections that it has while the server gives no more (max_connections, a limit of the role or
// the database, or PgBouncer's max_client_conn). Callers then wait for one of these connections instead of failing.
type crowd struct {
	pool    *sql.DB
	max     int          // connections of the pool otherwise
	open    atomic.Int64 // connections
	dialing atomic.Int64 // attempts to make one

	mu     sync.Mutex // only one of max and open is being set
	widens *time.Timer
	copies int // transactions with a COPY, each of which has a connection for minutes
	// likely is how many connections the server will give: max, or as many as it gave when it refused another one.
	likely  int64
	changed chan struct{} // closed when copies or likely allows another COPY
}

// connected counts a new connection.
func (c *crowd) connected() {
	open := c.open.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if open > c.likely {
		c.likely = open
		c.announce()
	}
}

// enterCopy waits until less than half of the connections are used for a COPY: short statements must not wait for minutes until
// one of them ends. leaveCopy must follow.
func (c *crowd) enterCopy(ctx context.Context) error {
	for {
		changed := c.tryCopy()
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryCopy returns nil if a COPY may begin, or else a channel that is closed when it may be tried again.
func (c *crowd) tryCopy() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int64(c.copies) < max(c.likely/2, 1) {
		c.copies++
		return nil
	}
	return c.changed
}

func (c *crowd) leaveCopy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copies--
	c.announce()
}

// announce is called with mu locked.
func (c *crowd) announce() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// refused returns the error of a connection that was not made. If the server had none to give and FewestConns are open, not all for COPYs, it is
// also driver.ErrBadConn, after which database/sql asks the pool again and waits there.
func (c *crowd) refused(err error) error {
	var failed *connectError
	if !errors.As(err, &failed) || !failed.crowded() {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// The pool counts the attempts of others too, and closes connections that are released while it has too many.
	left := int(c.open.Load() + c.dialing.Load())
	c.likely = int64(left)
	if left < FewestConns || left <= c.copies { // or each of them is used for a COPY
		return err
	}
	c.limit(left)
	if c.widens != nil {
		c.widens.Stop()
	}
	c.widens = time.AfterFunc(crowdedTime, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.limit(c.max)
	})
	return errors.Join(driver.ErrBadConn, err)
}

func (c *crowd) limit(conns int) {
	c.pool.SetMaxOpenConns(conns)
	c.pool.SetMaxIdleConns(conns)
}

// crowded reports whether a server was reached that has no connection to give. PgBouncer has one SQLSTATE for all of its
// errors; its texts about the limits of its configuration have this word, and are in English in any locale.
func (e *connectError) crowded() bool {
	return slices.ContainsFunc(e.causes, func(cause error) bool {
		var refused *pq.Error
		return errors.As(cause, &refused) && (refused.Code == pqerror.TooManyConnections ||
			refused.Code == pqerror.ProtocolViolation && strings.Contains(refused.Message, "connections"))
	})
}
