package store

import "email-gateway/shared/store/internal/pg"

// DB is the connections to the database, from which the packages below this one make their stores.
type DB = pg.DB

// Options limits one process's use of Postgres.
type Options = pg.Options

// Errors that callers distinguish: see package pg.
var (
	ErrNotFound       = pg.ErrNotFound
	ErrExists         = pg.ErrExists
	ErrUnavailable    = pg.ErrUnavailable
	ErrUnknownOutcome = pg.ErrUnknownOutcome
	ErrNotMigrated    = pg.ErrNotMigrated
	ErrUnreplicated   = pg.ErrUnreplicated
	ErrBusy           = pg.ErrBusy
	ErrTries          = pg.ErrTries
	ErrTriesOfCompany = pg.ErrTriesOfCompany
)

// IsOutage reports whether Postgres was unreachable or did not confirm a write. The same write may succeed later.
func IsOutage(err error) bool { return pg.IsOutage(err) }

// LockWait is the maximum wait of a request for rows that another transaction has locked.
const LockWait = pg.LockWait

// MinConns is how many connections a pool needs so that its callers never wait for each other.
const MinConns = pg.MinConns
