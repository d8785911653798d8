package sending

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/companylimit"
	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/shared/crashpoint"
	"email-gateway/shared/store"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/outbox"
)

const (
	// batchCommits limits how many batches of all companies are committed at a time, batchCommitsPerCompany those
	// of one company. A batch does not join the groups of single emails, so these need not wait for its rows.
	batchCommits, batchCommitsPerCompany = 3, 1
	// batchComposedPerCompany limits how many batches of a company are checked at a time: one can take a processor for
	// seconds. All companies together use as many as there are processors, and one more.
	batchComposedPerCompany = 1
	// batchSlotWait limits how long a batch waits for its turn. It is less than the wait that is
	// documented for a concurrent request with the same key.
	batchSlotWait = store.LockWait
	// batchLockPause is the time between two tries of a batch that needs a row another transaction has locked. It then
	// holds neither a turn nor a connection.
	batchLockPause = 250 * time.Millisecond
	// batchesLocked limits how many batches of all companies wait for such rows, batchesLockedPerCompany those of one
	// company: they keep their bodies in memory.
	batchesLocked, batchesLockedPerCompany = 3, 2
)

// batchService limits what batches use, so that a company with many or large ones delays only its own.
type batchService struct {
	composing, committing *companylimit.Limiter

	mu     sync.Mutex
	locked map[uuid.UUID]int // batches of each company that wait for locked rows
	all    int
}

func newBatchService(processors int) *batchService {
	return &batchService{
		composing:  companylimit.New(int64(processors)+1, batchComposedPerCompany),
		committing: companylimit.New(batchCommits, batchCommitsPerCompany),
		locked:     map[uuid.UUID]int{},
	}
}

// compose waits for a turn to check a batch.
func (s *batchService) compose(ctx context.Context, company uuid.UUID) (release func(), err error) {
	return batchTurn(ctx, s.composing, company)
}

func batchTurn(ctx context.Context, turns *companylimit.Limiter, company uuid.UUID) (release func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, batchSlotWait)
	defer cancel()
	release, err = turns.Enter(waiting, company)
	switch {
	case err == nil:
		return release, nil
	case ctx.Err() != nil:
		return nil, ctx.Err() // the client disconnected
	case errors.Is(err, companylimit.ErrCompanyLimit):
		return nil, slots.ErrCompanyBusy
	}
	return nil, slots.ErrAllBusy
}

// wait registers a batch that waits for locked rows.
func (s *batchService) wait(company uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == batchesLocked || s.locked[company] == batchesLockedPerCompany {
		return false
	}
	s.all++
	s.locked[company]++
	return true
}

func (s *batchService) endWait(company uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.locked[company]--; s.locked[company] == 0 {
		delete(s.locked, company)
	}
}

// acceptBatch commits a batch. A nil error means that it is stored; accept.Unknown is returned if that cannot be
// determined. While another transaction has locked a row that the batch needs, it is tried again for store.LockWait.
func (h *Handlers) acceptBatch(ctx context.Context, key *accept.Key, b outbox.NewBatch) (outbox.BatchOutcome, error) {
	waits, end := false, time.Now().Add(store.LockWait)
	defer func() {
		if waits {
			h.batches.endWait(b.CompanyID)
		}
	}()
	for {
		outcome, err := h.tryBatch(ctx, key, b)
		if !isLocked(err) {
			return outcome, err
		}
		if !waits {
			if waits = h.batches.wait(b.CompanyID); !waits {
				return outcome, h.accept.InProgress(context.WithoutCancel(ctx), tooManyLocked(err))
			}
		}
		if time.Now().After(end) {
			return outcome, h.accept.InProgress(context.WithoutCancel(ctx), err)
		}
		select {
		case <-time.After(batchLockPause):
		case <-ctx.Done():
			return outcome, ctx.Err() // the client disconnected, and nothing is written
		}
	}
}

// isLocked: another transaction has locked a row that the batch needs, and nothing was written.
func isLocked(err error) bool {
	return errors.Is(err, idempotency.ErrInProgress) || errors.Is(err, outbox.ErrAggregateBusy) || errors.Is(err, store.ErrBusy)
}

// tooManyLocked is the error of a batch that may not wait for a locked row. A used key keeps its own.
func tooManyLocked(err error) error {
	if errors.Is(err, idempotency.ErrInProgress) {
		return err
	}
	return fmt.Errorf("%w: %s", store.ErrBusy, err.Error())
}

// tryBatch commits a batch, or finds that a row is locked. It continues if the client disconnects.
func (h *Handlers) tryBatch(ctx context.Context, key *accept.Key, b outbox.NewBatch) (outbox.BatchOutcome, error) {
	release, err := batchTurn(ctx, h.batches.committing, b.CompanyID)
	if err != nil {
		return outbox.BatchOutcome{}, err
	}
	defer release()
	ctx = context.WithoutCancel(ctx)
	inTime, cancel := context.WithTimeout(ctx, accept.Wait)
	defer cancel()
	crashpoint.At(crashpoint.AcceptBegun)
	outcome, err := h.store.AcceptBatch(inTime, b)
	crashpoint.At(crashpoint.AcceptCommitted)
	late := err != nil && inTime.Err() != nil
	switch {
	case errors.Is(err, store.ErrUnknownOutcome):
		return outcome, h.lookUpBatch(ctx, key, b, outcome, late)
	case late:
		return outcome, errors.Join(store.ErrUnavailable, err)
	}
	return outcome, err
}

// lookUpBatch checks whether a batch whose commit was not confirmed was committed. All of its rows were, or none: it looks for
// one of the emails or, if no email is new, for the response that is stored with the Idempotency-Key.
func (h *Handlers) lookUpBatch(ctx context.Context, key *accept.Key, b outbox.NewBatch, outcome outbox.BatchOutcome, once bool) error {
	id, exists := outcome.Inserted, h.store.Exists
	switch {
	case outcome.Answer == nil: // it did not come to its commit
		return batchUnknown(id)
	case id == uuid.Nil && key == nil: // nothing was to be written
		return h.store.Confirm(ctx)
	case id == uuid.Nil:
		exists = func(ctx context.Context, _ uuid.UUID) (bool, error) {
			stored, err := h.store.FindAnswer(ctx, b.CompanyID, key.Route, key.Key)
			if errors.Is(err, store.ErrNotFound) {
				return false, nil
			}
			return err == nil && bytes.Equal(stored.Answer, outcome.Answer), err
		}
	}
	if found, _ := h.accept.LookUp(ctx, exists, id, once); found {
		return nil
	}
	return batchUnknown(id)
}

// batchUnknown returns the id of one of the emails. With an Idempotency-Key it is safe to repeat the request.
func batchUnknown(id uuid.UUID) problem.Problem {
	p := accept.Unknown("batch", id.String())
	p.Detail = "the database did not confirm the commit; all emails of the batch were accepted or none: look up the one with the id " + id.String()
	if id == uuid.Nil {
		p.Detail = "the database did not confirm the commit; repeat the request with the same Idempotency-Key"
	}
	return p
}
