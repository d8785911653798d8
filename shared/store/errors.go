package store

import "email-gateway/shared/store/internal/pg"

// Options bound what one process asks of Postgres.
type Options = pg.Options

// What callers tell apart of a failed statement, see package pg.
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

// IsOutage says that Postgres could not be asked, or did not answer whether it took a
// write: the same write may go through another time.
func IsOutage(err error) bool { return pg.IsOutage(err) }

// LockWait is how long a request waits at most for rows that another transaction has locked.
const LockWait = pg.LockWait
