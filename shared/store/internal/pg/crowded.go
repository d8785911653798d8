package pg

import (
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

// MinConns is the minimum number of connections to which a pool is limited. A caller that has a connection and needs another one
// would wait for itself in a pool of one, and two of them for each other in a pool of two: a dispatcher has two loops whose
// transactions need further connections.
const MinConns = 4

// crowd limits a pool to the connections that it has while the server gives no more (max_connections, a limit of the role or
// the database, or PgBouncer's max_client_conn). Callers then wait for one of these connections instead of failing.
type crowd struct {
	pool    *sql.DB
	max     int          // connections of the pool otherwise
	open    atomic.Int64 // connections
	dialing atomic.Int64 // attempts to make one

	mu     sync.Mutex // only one of max and open is being set
	widens *time.Timer
}

// refused returns the error of a connection that was not made. If the server had none to give and MinConns are open, it is
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
	if left < MinConns {
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
