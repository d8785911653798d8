package pipeline

import (
	"context"
	"time"
)

const (
	// outageDelay is the delay of a task whose email could not be read because of the database. Another
	// worker takes it then, or this one when its database answers again. It is not 0, because the
	// database may answer although it cannot read this email.
	outageDelay = time.Second
	// lateAnswer is how long the read of an email may take before the worker checks whether Postgres
	// answers at all, and how long until it checks again. A connection whose server is gone without notice
	// fails only after half a minute: the worker would take tasks until then, and keep those it has.
	lateAnswer = 2 * time.Second
)

// Database receives the failures of statements. After one, the consumer takes no task until Postgres
// answers.
type Database interface {
	Failed()
	// Ask returns nil if Postgres can be used.
	Ask(ctx context.Context) error
}

// alwaysAvailable is the Database of a pipeline whose consumer takes tasks in any case.
type alwaysAvailable struct{}

func (alwaysAvailable) Failed()                   {}
func (alwaysAvailable) Ask(context.Context) error { return nil }
