package feedback

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/sesevent"
	"email-gateway/shared/store"
	feedbackstore "email-gateway/shared/store/feedback"
)

const (
	// receivers is the number of concurrent calls that receive messages. One call returns at most 10, so a single receiver would
	// be limited to 10 events per round trip: 200/s at 50 ms, the events of 100 emails.
	receivers = 4
	// batches is the number of batches that are received or recorded at the same time. A batch that waits for a locked row delays
	// the others only if all batches wait.
	batches = 10
	// pollTime is the duration of a long poll: the maximum of SQS.
	pollTime = 20 * time.Second
	// firstPause and maxPause are the pauses before a call after one failed call and after several.
	firstPause, maxPause = time.Second, 30 * time.Second
	// recordTime limits the recording of one event. It is shorter than SQS's default visibility
	// timeout of 30 s.
	recordTime = 10 * time.Second
	// deleteTime limits a deletion. A stop does not cancel it, because the messages are done.
	deleteTime = 10 * time.Second
	// lockedTime is how long events of a company are left in the queue after one of them timed out on a locked row.
	lockedTime = 5 * time.Second
	// unmatchedReceives is how often an event of no email of this installation is received before it is deleted. Another
	// installation that reads the same queue by mistake gets 31 of 32 of its events meanwhile, if both receive equally often.
	// The queue's maxReceiveCount must not be lower.
	unmatchedReceives = 5
	// invisibleTime is the recommended visibility timeout of the queue: for so long SQS hides a message that was received and not
	// deleted.
	invisibleTime = time.Minute
)

// Recorder records events. *sesevent.Recorder implements it.
type Recorder interface {
	Record(ctx context.Context, f feedbackstore.Feedback, start time.Time) (sesevent.Result, error)
	Count(kind string, result sesevent.Result)
}

// Params configure a Reader. All are required.
type Params struct {
	Log      *slog.Logger
	Queue    Queue
	Recorder Recorder
	Database Database
}

// Database says whether Postgres can be used.
type Database interface {
	// Failed reports that an event could not be recorded: Postgres may be unavailable.
	Failed()
	// Ask returns nil if it can be used.
	Ask(ctx context.Context) error
	// Await returns when it can be used, or with an error when ctx ends.
	Await(ctx context.Context) error
}

// Reader is the service that reads the queue. Several Readers, in several processes, may read one queue.
type Reader struct {
	p      Params
	cancel context.CancelFunc
	done   chan struct{}
	locked *lockedCompanies
	warned service.LogLimiter // of unmatched events

	receives, deletes calls

	mu        sync.Mutex
	drainedAt time.Time
	hidden    time.Time // until then SQS may hide messages that were received and not recorded
}

// NewReader makes a Reader that is not running yet.
func NewReader(p Params) *Reader {
	return &Reader{
		p: p, done: make(chan struct{}), locked: newLockedCompanies(),
		receives: calls{log: p.Log, name: "receive", last: errNotAsked},
		// A message that was not deleted comes back after invisibleTime, maybe to another process.
		deletes: calls{log: p.Log, name: "delete", keep: 2 * invisibleTime},
	}
}

// Start starts reading.
func (r *Reader) Start(ctx context.Context, _ func(error)) error {
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go r.run(ctx)
	return nil
}

// Stop ends the long poll and waits for the batches in progress.
func (r *Reader) Stop(ctx context.Context) error {
	r.cancel()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ping returns the error of the last call to the queue that receives messages, or of the last one that deletes some.
func (r *Reader) Ping(context.Context) error { return cmp.Or(r.receives.err(), r.deletes.err()) }

// Drained returns when a long poll of the queue last returned less than a batch, whose events were recorded, while none
// was hidden after a failure; zero = not yet.
func (r *Reader) Drained() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drainedAt
}

func (r *Reader) drained(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.After(r.drainedAt) && at.After(r.hidden) {
		r.drainedAt = at
	}
}

// failed notes that messages may have been received, and not recorded.
func (r *Reader) failed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hidden = time.Now().Add(invisibleTime)
}

func (r *Reader) run(ctx context.Context) {
	defer close(r.done)
	var running sync.WaitGroup
	free := make(chan struct{}, batches)
	for range receivers {
		running.Go(func() { r.receive(ctx, free, &running) })
	}
	running.Wait()
}

// receive receives batches while free has room, and starts recording each.
func (r *Reader) receive(ctx context.Context, free chan struct{}, running *sync.WaitGroup) {
	failures := 0
	for ctx.Err() == nil {
		// SQS counts each receive as a delivery, so messages stay in the queue while Postgres is unavailable.
		if r.p.Database.Await(ctx) != nil {
			return
		}
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wait := pollTime
		if r.receives.err() != nil {
			wait = 0 // do not wait for messages: Ping is updated at once
		}
		start := time.Now()
		messages, err := r.p.Queue.Receive(ctx, wait)
		if ctx.Err() == nil {
			r.receives.ended(start, err)
		}
		if err != nil {
			r.failed()
			<-free
			failures++
			rest(ctx, failures)
			continue
		}
		failures = 0
		received := time.Now()
		running.Go(func() {
			defer func() { <-free }()
			// Stop waits for batches in progress.
			r.work(context.WithoutCancel(ctx), messages)
			// A short poll asks some of SQS's servers only.
			if len(messages) < MaxMessages && wait > 0 {
				r.drained(received)
			}
		})
	}
}

// rest waits after the n-th failure in a row.
func rest(ctx context.Context, n int) {
	_ = service.Pause(ctx, service.Jitter(min(firstPause<<min(n-1, 10), maxPause), 0.25))
}

// work records the events of a batch concurrently and deletes the messages that are done.
func (r *Reader) work(ctx context.Context, messages []Message) {
	start := time.Now()
	finished := make([]bool, len(messages))
	var group sync.WaitGroup
	for i, m := range messages {
		group.Go(func() { finished[i] = r.record(ctx, m, start) })
	}
	group.Wait()
	var done []Message
	for i, m := range messages {
		if finished[i] {
			done = append(done, m)
		}
	}
	if len(done) == 0 {
		return
	}
	crashpoint.At(crashpoint.FeedbackRecorded)
	ctx, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	// A message that is not deleted is delivered again and recognized as a repetition.
	start = time.Now()
	r.deletes.ended(start, r.p.Queue.Delete(ctx, done))
}

// record records the event of a message and reports whether the message is done.
func (r *Reader) record(ctx context.Context, m Message, start time.Time) (done bool) {
	f, err := service.Recovered(func() (feedbackstore.Feedback, error) { return sesevent.ParseQueued(m.Body) })
	switch {
	case errors.Is(err, sesevent.ErrNoEvent):
		r.p.Recorder.Count("", sesevent.Ignored)
		r.p.Log.Info("SES has tested the topic of the queue", "messageId", m.ID)
		return true
	case err != nil:
		r.p.Recorder.Count("", sesevent.Poison)
		r.p.Log.Error("malformed message left in the queue of SES events", "messageId", m.ID, "error", email.MaskText(err.Error()))
		return false
	}
	may, probe := r.locked.enter(f.CompanyID)
	if !may {
		r.p.Recorder.Count(f.Kind, sesevent.Postponed)
		return false
	}
	recording, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	result, err := service.Recovered(func() (sesevent.Result, error) { return r.p.Recorder.Record(recording, f, start) })
	later := err != nil && (store.IsOutage(err) || recording.Err() != nil)
	if later {
		r.p.Database.Failed()
	}
	// The cause is an outage, or another transaction's lock if Postgres answers.
	switch {
	case later && r.p.Database.Ask(ctx) == nil:
		r.locked.failed(f.CompanyID)
	case later:
		r.failed()
		fallthrough
	default:
		r.locked.passed(f.CompanyID, probe)
	}
	switch {
	case err == nil:
		return result != sesevent.Unmatched || r.mayDeleteUnmatched(m, f.Kind)
	case !later:
		r.p.Recorder.Count(f.Kind, sesevent.Poison)
		r.p.Log.Error("event refused by the database and left in the queue", "messageId", m.ID, "kind", f.Kind, "error", email.MaskText(err.Error()))
		return false
	}
	r.p.Recorder.Count(f.Kind, sesevent.Postponed)
	r.p.Log.Warn("event not recorded, left in the queue", "messageId", m.ID, "kind", f.Kind, "error", email.MaskText(err.Error()))
	return false
}

// mayDeleteUnmatched reports whether an event of no email of this installation has been received often enough.
func (r *Reader) mayDeleteUnmatched(m Message, kind string) bool {
	if m.Receives < unmatchedReceives {
		return false
	}
	if omitted, ok := r.warned.Allow(""); ok {
		r.p.Log.Warn("event of no email of this installation deleted from the queue of SES events: the email is of another installation or program "+
			"whose events come to this queue (give each a queue of its own), was lost in a restore or failover, or its log is deleted",
			"messageId", m.ID, "kind", kind, "omitted", omitted)
	}
	return true
}
