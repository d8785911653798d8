package dispatcher

import (
	"context"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/dispatch"
)

// source takes rows of one target from the outbox, one batch at a time, and records each batch's
// results.
type source interface {
	// take takes rows in a committed transaction: then only this dispatcher publishes them.
	take(ctx context.Context, takes []dispatch.LaneTake) (dispatch.Batch, error)
	// record records the results of a batch: published rows have a task on their queue, released rows are due again.
	record(ctx context.Context, taken dispatch.Batch, published []uuid.UUID, released []dispatch.Release) error
	// leased reports whether rows that are not recorded become due again when their lease ends. A row whose publish was not
	// confirmed is then not released: the broker may have stored its task.
	leased() bool
	// idle records that the last batch was published. Otherwise the next take does that.
	idle(ctx context.Context) error
}

// emailStore takes and releases emails.
type emailStore interface {
	TakeDue(ctx context.Context, slot dispatch.Slot, takes []dispatch.LaneTake) (dispatch.Batch, error)
	TakeProbe(ctx context.Context, slot dispatch.Slot, id uuid.UUID) (dispatch.Batch, error)
	Release(ctx context.Context, takenAt time.Time, rows []dispatch.Release) (left int, err error)
	ForgetBatch(ctx context.Context, slot dispatch.Slot) error
}

// emails takes emails. They are ENQUEUED from the take on, so only those without a task need a second commit.
type emails struct {
	store  emailStore
	slot   dispatch.Slot
	former []dispatch.Slot // replaced after an error; their last batch was published
}

func newEmails(store emailStore) *emails {
	return &emails{store: store, slot: dispatch.Slot{ID: uuid.New()}}
}

func (e *emails) take(ctx context.Context, takes []dispatch.LaneTake) (dispatch.Batch, error) {
	return e.taken(e.store.TakeDue(ctx, e.slot, takes))
}

func (e *emails) takeProbe(ctx context.Context, id uuid.UUID) (dispatch.Batch, error) {
	return e.taken(e.store.TakeProbe(ctx, e.slot, id))
}

// taken handles the result of a take, which has deleted the row of the slot's last batch from dispatch_batches. After an error
// a batch may be committed that is never published: a new slot keeps the row of that batch for the rescuer.
func (e *emails) taken(batch dispatch.Batch, err error) (dispatch.Batch, error) {
	if err != nil {
		if !e.slot.Published.IsZero() {
			e.former = append(e.former, e.slot)
		}
		e.slot = dispatch.Slot{ID: uuid.New()}
		return batch, err
	}
	e.slot.Published = time.Time{}
	return batch, nil
}

// record implements source. The batch counts as published if none of its emails is left without a task; otherwise the rescuer
// finds these emails by the row of the batch.
func (e *emails) record(ctx context.Context, taken dispatch.Batch, _ []uuid.UUID, released []dispatch.Release) error {
	if len(released) > 0 {
		left, err := e.store.Release(ctx, taken.TakenAt, released)
		if err != nil || left > 0 {
			e.slot = dispatch.Slot{ID: uuid.New()}
			return err
		}
	}
	e.slot.Published = taken.TakenAt
	return nil
}

// leased implements source. An unconfirmed email is released: a second publish finds its task on the queue, if there is one.
func (e *emails) leased() bool { return false }

func (e *emails) idle(ctx context.Context) error {
	for ; len(e.former) > 0; e.former = e.former[1:] {
		if err := e.store.ForgetBatch(ctx, e.former[0]); err != nil {
			return err
		}
	}
	if e.slot.Published.IsZero() {
		return nil
	}
	err := e.store.ForgetBatch(ctx, e.slot)
	if err == nil {
		e.slot.Published = time.Time{}
	}
	return err
}

// jobStore takes and releases bulk jobs.
type jobStore interface {
	LeaseJobs(ctx context.Context, takes []dispatch.LaneTake) (dispatch.Batch, error)
	MarkPublished(ctx context.Context, ids []uuid.UUID) error
	Release(ctx context.Context, takenAt time.Time, rows []dispatch.Release) (left int, err error)
}

// jobs takes bulk jobs. The take leases them, and they are PUBLISHED only after the broker's confirm.
type jobs struct{ store jobStore }

func (j *jobs) take(ctx context.Context, takes []dispatch.LaneTake) (dispatch.Batch, error) {
	return j.store.LeaseJobs(ctx, takes)
}

func (j *jobs) record(ctx context.Context, taken dispatch.Batch, published []uuid.UUID, released []dispatch.Release) error {
	if len(published) > 0 {
		if err := j.store.MarkPublished(ctx, published); err != nil {
			return err
		}
	}
	if len(released) == 0 {
		return nil
	}
	_, err := j.store.Release(ctx, taken.TakenAt, released)
	return err
}

// leased implements source: the broker would accept a second message of the same job.
func (j *jobs) leased() bool { return true }

func (j *jobs) idle(context.Context) error { return nil }
