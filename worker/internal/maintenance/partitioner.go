package maintenance

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"email-gateway/shared/service"
	"email-gateway/shared/store"
)

const (
	// partitionInterval may be long: partitions are needed months later.
	partitionInterval = time.Hour
	// monthsAhead is how long no dispatcher may run before logs of a month stand in the
	// default partition.
	monthsAhead = 3
)

// PartitionStore is what the partitioner asks of the database.
type PartitionStore interface {
	MakeLogPartition(ctx context.Context, log store.Log, monthsAhead int) (string, error)
	DropLogPartition(ctx context.Context, log store.Log, age time.Duration) (store.DroppedPartition, error)
}

// Partitioner makes the coming months' partitions of logs and events, and drops those
// past their time. It gives up whenever it would have to wait: writes that queue up
// behind its lock wait 200 ms at most.
type Partitioner struct {
	*service.Loop
	params PartitionerParams
}

// PartitionerParams make a Partitioner.
type PartitionerParams struct {
	Log          *slog.Logger
	Store        PartitionStore
	Actions      *Actions
	Logs, Events time.Duration // 0 = for ever
}

// NewPartitioner makes a partitioner that is not running yet.
func NewPartitioner(p PartitionerParams) *Partitioner {
	r := &Partitioner{params: p}
	r.Loop = service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: partitionInterval, RunOnce: r.runOnce, ErrorDelay: time.Minute,
	})
	return r
}

func (r *Partitioner) runOnce(ctx context.Context) (more bool, err error) {
	for _, kept := range []struct {
		log store.Log
		age time.Duration
	}{{store.EmailLogs, r.params.Logs}, {store.EmailEvents, r.params.Events}} {
		err = errors.Join(err, r.orLater(r.make(ctx, kept.log)))
		if kept.age > 0 {
			err = errors.Join(err, r.orLater(r.drop(ctx, kept.log, kept.age)))
		}
	}
	return false, err
}

func (r *Partitioner) make(ctx context.Context, log store.Log) error {
	for {
		name, err := r.params.Store.MakeLogPartition(ctx, log, monthsAhead)
		if err != nil || name == "" {
			return err
		}
		r.params.Actions.Count(partitionMade, 1)
		r.params.Log.Info("partition made", "partition", name)
	}
}

func (r *Partitioner) drop(ctx context.Context, log store.Log, age time.Duration) error {
	for {
		p, err := r.params.Store.DropLogPartition(ctx, log, age)
		switch {
		case err != nil || p.Name == "":
			return err
		case !p.Dropped:
			r.params.Actions.Count(partitionPostponed, 1)
			r.params.Log.Info("partition stays: many of its emails are still in the outbox", "partition", p.Name)
			return nil
		}
		r.params.Actions.Count(partitionDropped, 1)
		r.params.Log.Info("partition dropped", "partition", p.Name, "moved", p.Moved)
	}
}

// orLater: somebody uses the table, a backup perhaps. Next hour will do.
func (r *Partitioner) orLater(err error) error {
	if !errors.Is(err, store.ErrInUse) {
		return err
	}
	r.params.Actions.Count(partitionPostponed, 1)
	r.params.Log.Info("partitions postponed", "error", err)
	return nil
}
