package pg

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// connectError means that no connection was made, so no statement was run. It has no method Unwrap, so errors.As finds no
// *pq.Error in it: a server that refuses a connection has the SQLSTATEs of refused statements, and the cause is not the
// statement, nor one of its rows.
type connectError struct {
	causes []error // one for each server that has failed, and that of the context if it has ended
}

func (e *connectError) Error() string {
	if len(e.causes) == 1 {
		return e.causes[0].Error()
	}
	return "connect to one of several servers: " + errors.Join(e.causes...).Error()
}

// Is reports whether a cause is target, such as driver.ErrBadConn, for which database/sql connects again.
func (e *connectError) Is(target error) bool {
	return slices.ContainsFunc(e.causes, func(cause error) bool { return errors.Is(cause, target) })
}

// lasting reports whether waiting does not help: each server was reached and refuses this program's connections because
// of the password, the certificate or the name of the database, for example.
func (e *connectError) lasting() bool {
	return !slices.ContainsFunc(e.causes, func(cause error) bool {
		return isLost(cause) || isCutOff(cause) || isPassing(cause) || isOtherState(cause) ||
			errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded)
	})
}

// isOtherState reports whether the server does not have the state that target_session_attrs requires, as between the
// failure of a primary and the promotion of its standby. lib/pq's errors about it have no type, so they are recognized by
// their text.
func isOtherState(err error) bool {
	return strings.Contains(err.Error(), "session is read-only") || strings.Contains(err.Error(), "hot standby mode")
}

// neverBegan reports whether there was no connection to run the statement on.
func neverBegan(err error) bool {
	var failed *connectError
	return errors.As(err, &failed)
}

// isRefusedConnection reports whether no connection was made, for a reason that does not pass.
func isRefusedConnection(err error) bool {
	var failed *connectError
	return errors.As(err, &failed) && failed.lasting()
}
