package maintenance

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
	"email-gateway/shared/store/retention"
)

const (
	// partitionInterval may be long: partitions are created months before they are needed.
	partitionInterval = time.Hour
	// postponedDelay is the time until the next round after one that met a table in use. A backup may use it for hours.
	postponedDelay = time.Minute
	// monthsAhead is for how many coming months partitions exist. If no dispatcher runs for longer, logs go into the default
	// partition.
	monthsAhead = 3
)

// PartitionStore has the database operations of the partitioner.
type PartitionStore interface {
	CheckClock(ctx context.Context, host func() time.Time) error
	MakeLogPartition(ctx context.Context, log retention.Log, monthsAhead int) (string, error)
	DropLogPartition(ctx context.Context, log retention.Log, age time.Duration) (retention.DroppedPartition, error)
	MissingLogPartitions(ctx context.Context) ([]retention.MissingPartitions, error)
	OverdueLogPartitions(ctx context.Context, log retention.Log, age time.Duration) (int, error)
}

// Partitioner creates the coming months' partitions of logs and events, and drops expired ones. It does not wait for a lock for
// longer than 200 ms, because writes queue behind its lock request.
type Partitioner struct {
	*service.Loop
	params           PartitionerParams
	again            chan struct{} // wakes the loop after a postponed round
	postponed        bool          // by this round
	missing, overdue *prometheus.GaugeVec
}

// PartitionerParams configure a Partitioner.
type PartitionerParams struct {
	Log          *slog.Logger
	Store        PartitionStore
	Actions      *Actions
	Registry     prometheus.Registerer
	Logs, Events time.Duration    // 0 = unlimited
	Postponed    time.Duration    // until the next round after one that met a table in use; 0 = postponedDelay
	Now          func() time.Time // of this machine; nil = time.Now
}

// NewPartitioner makes a partitioner that is not running yet.
func NewPartitioner(p PartitionerParams) *Partitioner {
	p.Postponed = cmp.Or(p.Postponed, postponedDelay)
	if p.Now == nil {
		p.Now = time.Now
	}
	r := &Partitioner{params: p, again: make(chan struct{}, 1), missing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "log_partitions_missing", Help: "How many of this month and the next have no partition.",
	}, []string{"log"}), overdue: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "log_partitions_overdue", Help: "Partitions past their retention that still exist.",
	}, []string{"log"})}
	notYet := errors.New("not measured yet")
	r.setMissing(nil, notYet)
	r.setOverdue(retention.EmailLogs, 0, notYet)
	r.setOverdue(retention.EmailEvents, 0, notYet)
	p.Registry.MustRegister(r.missing, r.overdue)
	r.Loop = service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: partitionInterval, Wake: r.again, RunOnce: r.runOnce, ErrorDelay: time.Minute,
	})
	return r
}

func (r *Partitioner) runOnce(ctx context.Context) (more bool, err error) {
	r.postponed = false
	for _, kept := range []struct {
		log retention.Log
		age time.Duration
	}{{retention.EmailLogs, r.params.Logs}, {retention.EmailEvents, r.params.Events}} {
		if kept.age > 0 {
			err = errors.Join(err, r.orLater(r.drop(ctx, kept.log, kept.age)))
		}
		// After dropping: while another dispatcher drops or makes a partition of the log, this one makes none. The last one
		// to do either then makes what is missing.
		err = errors.Join(err, r.orLater(r.make(ctx, kept.log)))
		err = errors.Join(err, r.countOverdue(ctx, kept.log, kept.age))
	}
	// Measured even if another dispatcher or a lock prevented the creation of partitions.
	missing, lookErr := r.params.Store.MissingLogPartitions(ctx)
	r.setMissing(missing, lookErr)
	if err = errors.Join(err, lookErr); err == nil {
		r.wakeLater()
	}
	return false, err
}

// setMissing sets the metric: NaN if err is not nil.
func (r *Partitioner) setMissing(missing []retention.MissingPartitions, err error) {
	for _, log := range []retention.Log{retention.EmailLogs, retention.EmailEvents} {
		months := 0.0
		if err != nil {
			months = math.NaN()
		}
		for _, m := range missing {
			if m.Log == log {
				months = float64(m.Months)
			}
		}
		r.missing.WithLabelValues(string(log)).Set(months)
	}
}

// countOverdue counts the expired partitions that still exist, for whatever reason.
func (r *Partitioner) countOverdue(ctx context.Context, log retention.Log, age time.Duration) (err error) {
	overdue := 0
	if age > 0 {
		overdue, err = r.params.Store.OverdueLogPartitions(ctx, log, age)
	}
	r.setOverdue(log, overdue, err)
	return err
}

func (r *Partitioner) setOverdue(log retention.Log, overdue int, err error) {
	value := float64(overdue)
	if err != nil {
		value = math.NaN()
	}
	r.overdue.WithLabelValues(string(log)).Set(value)
}

func (r *Partitioner) make(ctx context.Context, log retention.Log) error {
	for {
		name, err := r.params.Store.MakeLogPartition(ctx, log, monthsAhead)
		if err != nil || name == "" {
			return err
		}
		r.params.Actions.Count(partitionMade, 1)
		r.params.Log.Info("partition created", "partition", name)
	}
}

func (r *Partitioner) drop(ctx context.Context, log retention.Log, age time.Duration) error {
	for {
		if err := r.params.Store.CheckClock(ctx, r.params.Now); err != nil {
			return err
		}
		p, err := r.params.Store.DropLogPartition(ctx, log, age)
		switch {
		case err != nil || p.Name == "":
			return err
		case !p.Dropped:
			r.params.Actions.Count(partitionPostponed, 1)
			r.params.Log.Info("partition kept: many of its emails are still in the outbox", "partition", p.Name)
			return nil
		}
		r.params.Actions.Count(partitionDropped, 1)
		r.params.Log.Info("partition dropped", "partition", p.Name, "moved", p.Moved)
	}
}

// orLater ignores ErrInUse: the table is in use, perhaps by a backup, and the next round, which begins soon, retries.
func (r *Partitioner) orLater(err error) error {
	if !errors.Is(err, retention.ErrInUse) {
		return err
	}
	r.params.Actions.Count(partitionPostponed, 1)
	r.params.Log.Info("partitions postponed", "error", err)
	r.postponed = true
	return nil
}

// wakeLater wakes the loop once for a round in which anything was postponed. With a wake-up for each of up to four
// postponed steps there would be more rounds every minute, until their lock requests blocked the logs nearly all the time.
// A round that failed needs no wake-up: the loop repeats it after ErrorDelay.
func (r *Partitioner) wakeLater() {
	if !r.postponed {
		return
	}
	time.AfterFunc(r.params.Postponed, func() {
		select {
		case r.again <- struct{}{}:
		default: // the loop is woken already
		}
	})
}
