package maintenance

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/fairloop"
)

const (
	// replayInterval is the maximum delay of the first round of a replay. It does not affect the rate: unused capacity of the
	// last second is carried over.
	replayInterval = time.Second
	// replayBatch bounds a round. replayers is how many dead letters are retried concurrently: the Advancer writes them in one
	// commit. A round must end well before the one-minute limit of a transaction.
	replayBatch = 500
	replayers   = 64
	roundTime   = 30 * time.Second
	// lockedTries is how often a round tries a locked email, lockedPause apart: programs that move or cancel emails of an aggregate
	// lock them for some milliseconds, and the next round begins 5 s after a postponed one.
	lockedTries = 3
	lockedPause = 250 * time.Millisecond
)

// ReplayStore has the database operations of the replayer.
type ReplayStore interface {
	DueReplays(ctx context.Context) ([]deadletter.DueReplay, error)
	WorkReplay(ctx context.Context, id uuid.UUID, limit int,
		retry func(context.Context, deadletter.Replay, []deadletter.Letter) (deadletter.ReplayCounts, error)) (deadletter.ReplayRound, error)
	RetryDeadLetter(ctx context.Context, l deadletter.Letter, r deadletter.LetterRetry) error
	WakeLanes(ctx context.Context, lanes []lane.Lanes) error
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
	params   ReplayerParams
	letters  *prometheus.CounterVec
	schedule fairloop.Schedule
}

// NewReplayer makes a replayer that is not running yet.
func NewReplayer(p ReplayerParams) *Replayer {
	r := &Replayer{params: p, schedule: make(fairloop.Schedule), letters: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dead_letters_replayed_total",
		Help: "Dead letters of bulk requests by action (retry, discard) and result (done, skipped, failed).",
	}, []string{"action", "outcome"})}
	for _, action := range []deadletter.ReplayAction{deadletter.ReplayRetry, deadletter.ReplayDiscard} {
		for _, outcome := range []string{"done", "skipped", "failed"} {
			r.letters.WithLabelValues(string(action), outcome)
		}
	}
	p.Registry.MustRegister(r.letters)
	r.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: replayInterval, RunOnce: r.runOnce})
	return r
}

// runOnce runs rounds of replays, in which companies take turns, so that neither a large replay nor many of one company delay the
// others. A replay whose round failed comes after its company's others.
func (r *Replayer) runOnce(ctx context.Context) (more bool, err error) {
	due, err := r.params.Store.DueReplays(ctx)
	if err != nil {
		return false, err
	}
	ids := make(map[uuid.UUID]bool, len(due))
	for _, d := range due {
		ids[d.ID] = true
	}
	r.schedule.Retain(ids)
	now := time.Now()
	due = slices.DeleteFunc(due, func(d deadletter.DueReplay) bool { return !r.schedule.Due(d.ID, now) })
	slices.SortStableFunc(due, func(a, b deadletter.DueReplay) int { return r.schedule.LongerDue(a.ID, b.ID) })
	var errs []error
	left := fairloop.Pass(due, func(d deadletter.DueReplay) uuid.UUID { return d.CompanyID }, fairloop.PassTime, func(d deadletter.DueReplay) {
		start := time.Now()
		again, err := r.work(ctx, d.ID)
		more = more || again
		r.schedule.Requeue(d.ID)
		if err != nil {
			r.schedule.PostponeBriefly(d.ID, start, replayInterval)
		}
		if errors.Is(err, deadletter.ErrReplayLocked) { // an error would delay the replays of other companies
			r.params.Log.Warn("bulk discard waits for a locked dead letter", "replayId", d.ID)
			return
		}
		errs = append(errs, err)
	})
	return more || left, errors.Join(errs...)
}

// work runs one round of a replay.
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
	if round.Action == deadletter.ReplayRetry && (round.Now.Done > 0 || round.Postponed) { // a postponed round may have retried later dead letters
		err = r.params.Store.WakeLanes(ctx, lanesOf(round.Replay))
	}
	return round.More, err
}

// lanesOf returns the lanes that may have emails of the replay again: those of its company, or all.
func lanesOf(r deadletter.Replay) []lane.Lanes {
	if r.CompanyID == nil {
		return nil
	}
	return []lane.Lanes{{Company: *r.CompanyID}}
}

// retry retries dead letters and counts the results, up to the first one that is left for a later round because another
// transaction has locked its row, or because Postgres is slow. A dead letter that cannot be written must not block the others.
// A database outage ends the round, which is then repeated.
func (r *Replayer) retry(ctx context.Context, replay deadletter.Replay, letters []deadletter.Letter) (deadletter.ReplayCounts, error) {
	how := replay.Retry()
	how.TTL, how.Advance = r.params.TTL, r.params.Advancer.Advance
	results := make([]letterResult, len(letters))
	var busy atomic.Bool
	var sending errgroup.Group
	sending.SetLimit(replayers)
	for i, l := range letters {
		sending.Go(func() (err error) {
			if busy.Load() {
				return nil
			}
			results[i], err = r.retryOne(ctx, replay, l, how)
			for try := 1; try < lockedTries && errors.Is(err, outbox.ErrAggregateBusy) && !busy.Load(); try++ {
				if service.Pause(ctx, lockedPause) != nil {
					break
				}
				results[i], err = r.retryOne(ctx, replay, l, how)
			}
			if isBusy(err) {
				if !busy.Swap(true) {
					r.params.Log.Warn("bulk retry waits for a locked row or a slow database", "deadLetterId", l.ID, telemetry.OutboxID, l.OutboxID,
						"replayId", replay.ID, "error", email.MaskText(err.Error()))
				}
				return nil
			}
			return err
		})
	}
	err := sending.Wait()
	var n deadletter.ReplayCounts
	for _, result := range results {
		switch result {
		case letterDone:
			n.Done++
		case letterSkipped:
			n.Skipped++
		case letterFailed:
			n.Failed++
		case letterLeft: // the next round counts the later ones that are done
			return n, err
		}
	}
	return n, err
}

// letterResult is the result of retrying a dead letter.
type letterResult int

const (
	letterLeft letterResult = iota // for a later round
	letterDone
	letterSkipped
	letterFailed
)

// retryOne returns an error only if it is temporary, and letterLeft with it.
func (r *Replayer) retryOne(ctx context.Context, replay deadletter.Replay, l deadletter.Letter, how deadletter.LetterRetry) (letterResult, error) {
	err := r.params.Store.RetryDeadLetter(ctx, l, how)
	var nothing *deadletter.NotReplayableError
	var over *quota.Error           // of a mailing, while the maximum number of mailings is running
	var paused *mailing.PausedError // of a mailing, while all mailings of the company are paused
	switch {
	case err == nil:
		return letterDone, nil
	case errors.As(err, &nothing), errors.As(err, &over), errors.As(err, &paused):
		return letterSkipped, nil
	case isBusy(err), isPassing(ctx, err):
		return letterLeft, err
	}
	r.params.Log.Error("cannot retry the dead letter", "deadLetterId", l.ID, telemetry.OutboxID, l.OutboxID, "replayId", replay.ID, "error", email.MaskText(err.Error()))
	return letterFailed, nil
}

// isBusy reports whether a row was locked, or Postgres was so slow that no transaction could begin in time. Nothing was
// written. Some of these errors are also errors of an outage (store.IsOutage).
func isBusy(err error) bool {
	return errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrTries) || errors.Is(err, store.ErrTriesOfCompany) || errors.Is(err, outbox.ErrAggregateBusy)
}

// isPassing reports whether the error is temporary and not caused by the dead letter.
func isPassing(ctx context.Context, err error) bool {
	return ctx.Err() != nil || store.IsOutage(err) || errors.Is(err, store.ErrNotMigrated)
}
