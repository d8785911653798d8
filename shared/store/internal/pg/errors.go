package pg

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

var (
	// ErrNotFound: there is no such row, or it belongs to another company.
	ErrNotFound = errors.New("not found")
	// ErrExists: a row with this key is already there.
	ErrExists = errors.New("already exists")
	// ErrUnavailable: Postgres cannot be reached, refuses the connection or is not answering. Nothing was written.
	ErrUnavailable = errors.New("database unavailable")
	// ErrUnknownOutcome: the statement was sent, but no answer came because the connection broke or the caller stopped
	// waiting. The write may have been applied.
	ErrUnknownOutcome = errors.New("no answer from the database, outcome unknown")
	// ErrNotMigrated: the database lacks a table or a column that a statement names.
	ErrNotMigrated = errors.New("database is not migrated")
)

// IsOutage reports whether Postgres was unreachable or did not confirm a write. The same write may succeed later.
func IsOutage(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknownOutcome)
}

// Translate converts the driver's error of a read to an error of this package, which wraps the cause.
func Translate(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	var refused *pq.Error
	switch {
	case errors.Is(err, ErrUnreplicated):
		return errors.Join(ErrUnknownOutcome, err)
	case neverBegan(err), isCutOff(err), isLost(err), isPassing(err):
		return errors.Join(ErrUnavailable, err)
	case errors.As(err, &refused) && refused.Code == pqerror.UniqueViolation:
		return errors.Join(ErrExists, err)
	case errors.As(err, &refused) && (refused.Code == pqerror.UndefinedTable || refused.Code == pqerror.UndefinedColumn):
		return errors.Join(ErrNotMigrated, err)
	}
	return err
}

// WriteError classifies the error of a write: Postgres refused it (err unchanged),
// never received it (ErrUnavailable), or may have applied it (ErrUnknownOutcome).
func WriteError(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	var refused *pq.Error
	switch {
	case isCutOff(err):
		return errors.Join(ErrUnknownOutcome, err)
	case neverBegan(err), errors.As(err, &refused):
		return Translate(err)
	}
	return errors.Join(ErrUnknownOutcome, err)
}

// isLost reports whether the connection broke, or every connection in the pool was broken already.
func isLost(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// isCutOff reports whether the server ended the connection while it ran the statement, or before it because the transaction
// was idle or open for too long. The statement may have committed before that.
func isCutOff(err error) bool {
	var refused *pq.Error
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code {
	case pqerror.AdminShutdown, pqerror.CrashShutdown, pqerror.IdleInTransactionSessionTimeout, pqerror.TransactionTimeout:
		return true
	}
	return refused.Code.Class() == "08" && !isMismatch(refused)
}

// isPassing reports whether Postgres refused the statement for a temporary reason: no memory, no disk space, a timeout,
// a lock conflict, a limit of the whole server, or a standby that does not accept writes. Nothing was written, and the
// same write may succeed later.
func isPassing(err error) bool {
	var refused *pq.Error
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code.Class() {
	case "40", "53", "57", "58":
		return true
	}
	switch refused.Code {
	// ProgramLimitExceeded: transaction ids, multixacts or the queue of NOTIFY are used up. A row that is too large for
	// an index has the same SQLSTATE, but the text in each index of this database is shorter than that limit.
	case pqerror.LockNotAvailable, pqerror.ReadOnlySQLTransaction, pqerror.ProgramLimitExceeded:
		return true
	}
	return isMismatch(refused)
}

// IsLockTimeout reports whether the statement reached lock_timeout while it waited for another transaction's lock.
// Nothing was written.
func IsLockTimeout(err error) bool {
	var refused *pq.Error
	return errors.As(err, &refused) && refused.Code == pqerror.LockNotAvailable && !errors.Is(err, ErrUnknownOutcome)
}

// isRepeatable reports whether the statement lost a race with another transaction, or was not prepared, and would succeed
// if it ran again at once.
func isRepeatable(err error) bool {
	var refused *pq.Error
	return errors.Is(err, errUnprepared) || errors.As(err, &refused) &&
		(refused.Code == pqerror.TRSerializationFailure || refused.Code == pqerror.TRDeadlockDetected ||
			isEventsKey(refused.Constraint) || refused.Constraint == eventsPath)
}

// IsRefusal reports whether Postgres rejected the statement's data (a constraint, a value). Nothing was
// applied, and one of the statement's rows is the cause. Internal errors (class XX) are not refusals.
func IsRefusal(err error) bool {
	var refused *pq.Error
	return errors.As(err, &refused) && !isPassing(err) && !isCutOff(err) && refused.Code.Class() != "XX"
}

// A transition violates these constraints if its snapshot of the log is out of date: the numbers of its events are
// taken, or its events do not follow the last one. When the statement runs again, it reads the current log.
const eventsPath = "email_events_path"

// isEventsKey reports whether the constraint is the primary key of a partition of email_events.
func isEventsKey(constraint string) bool {
	return strings.HasPrefix(constraint, "email_events_") && strings.HasSuffix(constraint, "_pkey")
}

func Wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", operation, err)
}
