package store

import (
	"database/sql"
	"errors"
	"net"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

var (
	// ErrNotFound: no such row, or one of another company.
	ErrNotFound = errors.New("not found")
	// ErrExists: a row with this key is already there.
	ErrExists = errors.New("already exists")
	// ErrUnavailable: Postgres cannot be reached or is not answering. Nothing was written.
	ErrUnavailable = errors.New("database unavailable")
	// ErrUnknownOutcome: the connection broke while a statement was under way. It
	// may have been applied.
	ErrUnknownOutcome = errors.New("database connection lost, outcome unknown")
)

// translate maps the driver's errors onto the package's, keeping the cause.
func translate(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	var refused *pq.Error
	if errors.As(err, &refused) {
		switch {
		case refused.Code == pqerror.UniqueViolation:
			return errors.Join(ErrExists, err)
		case refused.Code == pqerror.CannotConnectNow, refused.Code == pqerror.TooManyConnections, isCutOff(err):
			return errors.Join(ErrUnavailable, err)
		}
		return err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return errors.Join(ErrUnavailable, err)
	}
	return err
}

// writeError says of a failed write whether Postgres refused it (err as it is),
// never got it (ErrUnavailable), or broke off in the middle (ErrUnknownOutcome).
func writeError(err error) error {
	if err == nil {
		return nil
	}
	if !isCutOff(err) {
		var refused *pq.Error
		if translated := translate(err); errors.Is(translated, ErrUnavailable) || errors.As(translated, &refused) {
			return translated
		}
	}
	return errors.Join(ErrUnknownOutcome, err)
}

// isCutOff: the server ended the connection while it ran our statement. The commit
// may have gone through just before.
func isCutOff(err error) bool {
	var refused *pq.Error
	return errors.As(err, &refused) &&
		(refused.Code == pqerror.AdminShutdown || refused.Code == pqerror.CrashShutdown || refused.Code.Class() == "08")
}

// isRepeatable: the statement lost a race with another transaction and would pass
// if run again.
func isRepeatable(err error) bool {
	var refused *pq.Error
	return errors.As(err, &refused) &&
		(refused.Code == pqerror.TRSerializationFailure || refused.Code == pqerror.TRDeadlockDetected)
}

// isRefusal: Postgres said no to what the statement holds (a constraint, a value),
// so nothing was applied and one of its rows is at fault. Lack of resources (53),
// intervention (57) and system errors (58) are no row's fault.
func isRefusal(err error) bool {
	var refused *pq.Error
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code.Class() {
	case "08", "53", "57", "58", "XX":
		return false
	}
	return true
}
