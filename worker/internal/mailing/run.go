package mailing

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/store/lane"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/uuidv7"
)

var (
	// errLost means that this job no longer holds the mailing.
	errLost = errors.New("the job no longer holds the mailing")
	// errStopped means that the worker is stopping.
	errStopped = errors.New("worker is stopping")
)

// run is one running job.
type run struct {
	*Processor
	log       *slog.Logger
	job       *mailingstore.Job
	startedAt time.Time
	room      int // how many more emails fit into the lane, as last counted
	made      int
}

// expand processes batches until the mailing is expanded or the job's time is over. ctx is not
// cancelled by a stop; stop is checked before each batch is written.
func (r *run) expand(stop, ctx context.Context) error {
	builder, err := newBuilder(r.job, r.UnsubscribeURL)
	if err != nil {
		return err
	}
	for {
		full, err := r.full(ctx, 0)
		switch {
		case err != nil:
			return err
		case full:
			return r.leave(ctx, leadDelay)
		}
		room, err := r.Store.FindMailingRoom(ctx, r.job.CompanyID)
		switch {
		case err != nil:
			return err
		case room.Paused:
			return r.pause(ctx)
		case room.Emails == 0:
			return r.wait(ctx, room.Until)
		}
		limit := min(r.BatchSize, r.room)
		if room.Emails > 0 {
			limit = int(min(int64(limit), room.Emails))
		}
		page, err := r.Store.NextEntries(ctx, r.job, builder.positions, limit)
		if err != nil {
			return err
		}
		crashpoint.At(crashpoint.ExpandRead)
		entries, domains, err := r.checkDomains(stop, ctx, page.Entries)
		switch {
		case errors.Is(err, errStopped):
			return r.leave(ctx, 0)
		case err != nil:
			return err
		}
		x := mailingstore.Expansion{Finished: page.Last && len(entries) == len(page.Entries)}
		if x.Entries, err = builder.emails(entries, domains); err != nil {
			return err
		}
		x.Lines = len(x.Entries) // entries that the upload found invalid do not count as accepted
		if len(entries) > 0 {
			x.To = entries[len(entries)-1].ID
			x.Finished = x.Finished || x.To == r.job.LastEntry
		}
		x.NearQuota = room.Emails != mailingstore.Unlimited && room.Emails < int64(nearQuota*r.BatchSize)
		x.NoNewPeople = room.Recipients != mailingstore.Unlimited && room.Recipients < int64(len(entries))
		var over *quota.Error
		switch done, err := r.step(ctx, x); {
		case errors.As(err, &over): // other requests have used up the quota
		case done, err != nil:
			return err
		}
	}
}

// step commits a batch. If the job ends after it, its continuation is in the same commit, so that
// the rest is neither lost nor done twice.
func (r *run) step(ctx context.Context, x mailingstore.Expansion) (done bool, err error) {
	if !x.Finished {
		full, err := r.full(ctx, len(x.Entries))
		switch {
		case err != nil:
			return false, err
		case full:
			x.Continue = continueAfter(leadDelay)
		case r.over():
			x.Continue = continueAfter(0)
		}
	}
	return x.Finished || x.Continue != nil, r.commit(ctx, x)
}

// over reports whether the job's time is over.
func (r *run) over() bool { return time.Since(r.startedAt) >= r.JobTime }

// nearQuota is the number of batches of remaining quota below which each batch checks the quota in
// its commit.
const nearQuota = 32

// wait ends the job without a batch until the company's daily quota is renewed.
func (r *run) wait(ctx context.Context, until time.Time) error {
	x := mailingstore.Expansion{
		Waiting:  mailingstore.Waiting{For: quota.EmailsPerDay, Until: until},
		Continue: continueAfter(min(max(time.Until(until), time.Second), quotaDelay)),
	}
	if err := r.commit(ctx, x); err != nil {
		return err
	}
	r.Metrics.job("quota")
	r.log.Info("mailing waits for its company's quota", "quota", quota.EmailsPerDay, "until", until)
	return nil
}

// pause ends the job without a batch while the reputation guard has paused the company's mailings.
func (r *run) pause(ctx context.Context) error {
	x := mailingstore.Expansion{Waiting: mailingstore.Waiting{For: mailingstore.WaitsForReputation}, Continue: continueAfter(pausedDelay)}
	if err := r.commit(ctx, x); err != nil {
		return err
	}
	r.Metrics.job("paused")
	r.log.Debug("mailing waits: the reputation guard has paused its company's mailings")
	return nil
}

// leave ends the job without a batch.
func (r *run) leave(ctx context.Context, delay time.Duration) error {
	return r.commit(ctx, mailingstore.Expansion{Continue: continueAfter(delay)})
}

func continueAfter(delay time.Duration) *mailingstore.Continuation {
	return &mailingstore.Continuation{ID: uuidv7.New(), Delay: delay}
}

func (r *run) commit(ctx context.Context, x mailingstore.Expansion) error {
	crashpoint.At(crashpoint.ExpandChecked)
	queued, held, err := r.Store.Expand(ctx, r.job, x)
	switch {
	case err != nil:
		return err
	case !held:
		return errLost
	}
	crashpoint.At(crashpoint.ExpandCommitted)
	r.room -= queued
	r.made += queued
	r.count(x, queued)
	if lanes := r.written(x, queued); len(lanes) > 0 {
		if err := r.Store.WakeLanes(ctx, lanes); err != nil {
			r.log.Debug("cannot wake the dispatchers: their next listing finds the rows", "error", err)
		}
	}
	switch {
	case x.Finished:
		crashpoint.At(crashpoint.ExpandFinished)
		r.Metrics.job("finished")
		r.log.Info("mailing expanded", "emails", r.made)
	case x.Continue != nil:
		crashpoint.At(crashpoint.ExpandContinued)
		if x.Waiting.For != "" {
			return nil
		}
		r.Metrics.job("continued")
		r.log.Info("mailing continues in another job", "emails", r.made, "delay", x.Continue.Delay)
	}
	return nil
}

// written returns the lanes in which a batch has inserted due rows.
func (r *run) written(x mailingstore.Expansion, queued int) (lanes []lane.Lanes) {
	if queued > 0 {
		lanes = append(lanes, lane.Lanes{Company: r.job.CompanyID, Queue: email.QueueFor(email.MailingPriority), Mailing: r.job.ID})
	}
	if x.Continue != nil && x.Continue.Delay == 0 {
		lanes = append(lanes, lane.Lanes{Company: r.job.CompanyID, Queue: email.QueueMailings})
	}
	return lanes
}

func (r *run) count(x mailingstore.Expansion, queued int) {
	r.Metrics.expanded("queued", queued)
	for _, e := range x.Entries {
		if e.InvalidReason != "" {
			r.Metrics.expanded(e.InvalidReason, 1)
		}
	}
}

// full reports whether the lane has no room for so many more emails. It reads the database only if
// the last count says so, since the lane drains meanwhile.
func (r *run) full(ctx context.Context, more int) (bool, error) {
	if r.room > more {
		return false, nil
	}
	waiting, err := r.Store.CountLane(ctx, r.job.LaneID, r.Lead)
	if err != nil {
		return false, err
	}
	r.room = r.Lead - waiting
	return r.room <= more, nil
}
