package accept

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/shared/crashpoint"
	"email-gateway/shared/store"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/outbox"
)

const (
	// sameKeyWait limits how long a request waits for a concurrent request with the same Idempotency-Key.
	sameKeyWait = 5 * time.Second
	// Wait limits how long any other request waits: longer than a statement may take, since
	// a commit that waits for a synchronous standby is cancelled two seconds after that.
	Wait = 15 * time.Second
	// unknownWait limits the lookup after a commit that was not confirmed.
	unknownWait = 2 * time.Second
)

// Commit commits a request's rows with insert; id is the id of one of them. A nil error means
// that they are stored; unknown is returned if that cannot be determined. It continues if the
// client disconnects.
func (cm *Committer) Commit(ctx context.Context, id uuid.UUID, key *Key, unknown problem.Problem, insert func(context.Context) error) error {
	ctx = context.WithoutCancel(ctx)
	wait := Wait
	if key != nil {
		wait = sameKeyWait // for a concurrent insert with the same key
	}
	inTime, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	crashpoint.At(crashpoint.AcceptBegun)
	err := insert(inTime)
	crashpoint.At(crashpoint.AcceptCommitted)
	late := err != nil && inTime.Err() != nil
	switch {
	case errors.Is(err, store.ErrUnknownOutcome):
		found, answers := cm.LookUp(ctx, cm.store.Exists, id, late)
		switch {
		case found:
			return nil
		case late && answers && key != nil: // Postgres responds, so a concurrent request with the same key blocks the insert
			return problem.SameKeyInProgress
		}
		return unknown
	case errors.Is(err, idempotency.ErrInProgress), errors.Is(err, outbox.ErrAggregateBusy):
		return cm.InProgress(ctx, err)
	case late && key != nil: // not written: it waited for a slot, or for Postgres
		if err := cm.store.Confirm(ctx); err != nil {
			return err
		}
		return problem.SameKeyInProgress
	case late:
		return errors.Join(store.ErrUnavailable, err)
	}
	return err
}

// InProgress returns conflict, the 409 for a request that a concurrent one blocks, or
// store.ErrUnreplicated: while Postgres confirms no commits, the other request cannot finish. Any other
// failure of the check is ignored, because Postgres has just answered that the row is locked: many
// blocked requests at once make the check slow, which is not an outage.
func (cm *Committer) InProgress(ctx context.Context, conflict error) error {
	if err := cm.store.Confirm(ctx); errors.Is(err, store.ErrUnreplicated) {
		return err
	}
	return conflict
}

// LookUp checks whether a write with an unknown outcome was committed, and whether Postgres
// answered at all. A missing row proves nothing, because Postgres may still be committing it;
// the query is repeated unless once is set.
func (cm *Committer) LookUp(
	ctx context.Context, exists func(context.Context, uuid.UUID) (bool, error), id uuid.UUID, once bool,
) (found, answers bool) {
	ctx, cancel := context.WithTimeout(ctx, unknownWait)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		there, err := reqctx.WithDeadline(ctx, func(ctx context.Context) (bool, error) { return exists(ctx, id) })
		if there {
			return true, true
		}
		if answers = answers || err == nil; answers && once {
			return false, true
		}
		select {
		case <-ctx.Done():
			return false, answers
		case <-again.C:
		}
	}
}
