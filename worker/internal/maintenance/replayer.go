package maintenance

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

const (
	// replayInterval is how late a replay begins at most. It does not affect the replay's rate:
	// unused capacity of a second is carried over.
	replayInterval = time.Second
	// replayBatch bounds a round; replayers is how many letters are retried concurrently: the
	// Advancer groups those into one commit. A round must end well before the one-minute limit of a
	// transaction.
	replayBatch = 500
	replayers   = 64
	roundTime   = 30 * time.Second
)

// ReplayStore has the database operations of the replayer.
type ReplayStore interface {
	DueReplays(ctx context.Context) ([]uuid.UUID, error)
	WorkReplay(ctx context.Context, id uuid.UUID, limit int,
		retry func(context.Context, store.Replay, []store.DeadLetter) (store.ReplayCounts, error)) (store.ReplayRound, error)
	RetryDeadLetter(ctx context.Context, l store.DeadLetter, r store.LetterRetry) error
	Wake(ctx context.Context) error
}

// ReplayerParams configure a Replayer.
type ReplayerParams struct {
	Log      *slog.Logger
	Store    ReplayStore
	Advancer Advancer
	Registry prometheus.Registerer
	// TTL is the time to the new deadline of an email that is sent again.
	TTL time.Duration
}

// Replayer processes bulk requests for dead letters: retry or discard.
type Replayer struct {
	*service.Loop
	params  ReplayerParams
	letters *prometheus.CounterVec
}

// NewReplayer makes a replayer that is not running yet.
func NewReplayer(p ReplayerParams) *Replayer {
	r := &Replayer{params: p, letters: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dead_letters_replayed_total",
		Help: "Dead letters of bulk requests by action (retry, discard) and result (done, skipped, failed).",
	}, []string{"action", "outcome"})}
	for _, action := range []store.ReplayAction{store.ReplayRetry, store.ReplayDiscard} {
		for _, outcome := range []string{"done", "skipped", "failed"} {
			r.letters.WithLabelValues(string(action), outcome)
		}
	}
	p.Registry.MustRegister(r.letters)
	r.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: replayInterval, RunOnce: r.runOnce})
	return r
}

// runOnce gives each replay one round, so that a large one does not delay the others.
func (r *Replayer) runOnce(ctx context.Context) (more bool, err error) {
	due, err := r.params.Store.DueReplays(ctx)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, id := range due {
		again, err := r.work(ctx, id)
		more = more || again
		if errors.Is(err, store.ErrReplayLocked) { // this must not slow down the replays of other companies
			r.params.Log.Warn("bulk discard waits for a locked dead letter", "replayId", id)
			continue
		}
		errs = append(errs, err)
	}
	err = errors.Join(errs...)
	return more && err == nil, err
}

func (r *Replayer) work(ctx context.Context, id uuid.UUID) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	round, err := r.params.Store.WorkReplay(ctx, id, replayBatch, r.retry)
	if err != nil || round.ID == uuid.Nil {
		return false, err
	}
	for outcome, n := range map[string]int{"done": round.Now.Done, "skipped": round.Now.Skipped, "failed": round.Now.Failed} {
		r.letters.WithLabelValues(string(round.Action), outcome).Add(float64(n))
	}
	if round.Finished {
		r.params.Log.Info("dead letters replayed", "replayId", id, "action", round.Action, "done", round.Done+round.Now.Done,
			"skipped", round.Skipped+round.Now.Skipped, "failed", round.Failed+round.Now.Failed)
	}
	if round.Action == store.ReplayRetry && round.Now.Done > 0 {
		err = r.params.Store.Wake(ctx)
	}
	return round.More, err
}

// retry retries dead letters and counts the results. A letter that cannot be written must not block
// the others; a database outage ends the round, which then starts again.
func (r *Replayer) retry(ctx context.Context, replay store.Replay, letters []store.DeadLetter) (store.ReplayCounts, error) {
	how := replay.Retry()
	how.TTL, how.Advance = r.params.TTL, r.params.Advancer.Advance
	var done, skipped, failed atomic.Int64
	var sending errgroup.Group
	sending.SetLimit(replayers)
	for _, l := range letters {
		sending.Go(func() error {
			err := r.params.Store.RetryDeadLetter(ctx, l, how)
			var nothing *store.NotReplayableError
			var over *store.QuotaError // a mailing, while the maximum number of mailings is running
			switch {
			case err == nil:
				done.Add(1)
			case errors.As(err, &nothing), errors.As(err, &over):
				skipped.Add(1)
			case isPassing(ctx, err):
				return err
			default:
				failed.Add(1)
				r.params.Log.Error("cannot retry the dead letter", "deadLetterId", l.ID, telemetry.OutboxID, l.OutboxID, "replayId", replay.ID, "error", email.MaskText(err.Error()))
			}
			return nil
		})
	}
	err := sending.Wait()
	return store.ReplayCounts{Done: int(done.Load()), Skipped: int(skipped.Load()), Failed: int(failed.Load())}, err
}

// isPassing reports whether the error is temporary and says nothing about the dead letter.
func isPassing(ctx context.Context, err error) bool {
	return ctx.Err() != nil || store.IsOutage(err) || errors.Is(err, store.ErrNotMigrated)
}
