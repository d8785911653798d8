package privacy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/person"
	"email-gateway/shared/uuidv7"
)

// Erased is the result of an erasure. The counts are those of this run; the receipt includes those of the
// unfinished runs that it continues.
type Erased struct {
	Run          uuid.UUID `json:"run"`       // id of the run in the audit log
	Cancelled    int       `json:"cancelled"` // unsent emails and entries
	Emails       int       `json:"emails"`
	Copies       int       `json:"copies"` // emails to others from which the person's address was removed
	EmailLogs    int       `json:"emailLogs"`
	Entries      int       `json:"mailingEntries"`
	DeadLetters  int       `json:"deadLetters"`
	Recipients   int       `json:"recipients"` // including pending updates
	Suppressions int       `json:"suppressions"`
	Files        int       `json:"files"` // deleted files, of mailings and of attachments
	// Busy emails are being sent, wait for SES's delivery event, or are locked by another
	// transaction.
	Busy int `json:"busy"`
	// Writing is the number of open transactions that started before the erasure, such as an
	// upload: their rows are not visible yet.
	Writing int `json:"writing"`
	// UndecryptableFiles are mailings whose files cannot be decrypted, so that they may name the person. Until
	// the files are deleted or their key is available, the recipients are kept.
	UndecryptableFiles []uuid.UUID `json:"unreadFiles"`
	// Shared is the number of addresses that other people share. Rows that name the person only by
	// such an address are kept.
	Shared  int     `json:"sharedAddresses"`
	Receipt Receipt `json:"receipt"`
}

// Complete reports whether the erasure needs no further run.
func (e *Erased) Complete() bool {
	return e.Busy == 0 && e.Writing == 0 && len(e.UndecryptableFiles) == 0
}

// Order holds the parameters of an erasure.
type Order struct {
	Query
	By audit.Operator
	// Forget also deletes the suppressions of the person's addresses.
	Forget bool
	// Timeout limits the wait for emails being sent, and then for transactions that started before
	// the erasure.
	Timeout time.Duration
	// TaskTimeout limits the wait for a dispatcher to remove tasks from Redis. Remaining tasks are
	// removed later.
	TaskTimeout time.Duration
}

const (
	// eraseBatch is the number of rows per transaction: about 100 ms, if each must be cancelled first.
	eraseBatch = 100
	// maxRounds limits how often all tables are scanned. The second round finds what a program wrote
	// during the first, usually nothing.
	maxRounds = 10
	askEvery  = time.Second
	// writerTimeout is enough for every transaction except uploads and those of programs that share
	// the database.
	writerTimeout = 2 * time.Second
	// maxRest limits the pause after a batch, which is as long as the batch took: an erasure of
	// 100,000 emails uses half of one connection and leaves I/O capacity to others.
	maxRest = time.Second
	// saveTime limits the statement that saves the receipt of an interrupted run.
	saveTime = 5 * time.Second
)

// erasure is one run.
type erasure struct {
	*Archive
	order   Order
	person  subject
	done    Erased
	ledger  ledger
	copied  map[string]bool // emails to others that contain the person's address
	busy    map[string]bool // ids of busy emails in this round
	held    map[string]bool // emails that were busy in any round
	scan    person.Scan
	saved   int         // changed, when the ledger was last saved
	erasing []uuid.UUID // this run, and then the runs that it continues
}

// Erase erases the person from all tables and files. It ends when a whole round finds nothing
// more, or incomplete: then it must be run again later. It can be interrupted and run again at
// any point, because the identifiers of the person are stored until the erasure is complete. An error after they were stored is
// ErrInterrupted: the next run continues.
func (a *Archive) Erase(ctx context.Context, o Order) (Erased, error) {
	run := uuidv7.New()
	e := erasure{
		Archive: a, order: o, ledger: newLedger(), copied: map[string]bool{}, busy: map[string]bool{}, held: map[string]bool{}, scan: person.Scan{Until: uuid.Max},
		done: Erased{Run: run, UndecryptableFiles: []uuid.UUID{}},
	}
	var err error
	if e.person, err = a.find(ctx, o.Query); err != nil {
		return e.done, err
	}
	// Audit the start too, in case the run never ends.
	if err := a.People.Record(ctx, o.By, "person.erase", o.CompanyID, run, map[string]any{"by": o.by(), "forgetSuppressions": o.Forget}); err != nil {
		return e.done, err
	}
	if e.erasing, err = a.People.BeginErasure(ctx, run, &e.person.Person); err != nil {
		return e.done, err
	}
	e.person = a.subject(e.person.Person, o.Query)
	e.done.Shared = len(e.person.Shared)
	if err := e.complete(ctx); err != nil {
		return e.done, fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	return e.done, nil
}

// complete runs the erasure, and stores its receipt, that of an interrupted run too, and its audit entry.
func (e *erasure) complete(ctx context.Context) error {
	if err := e.run(ctx); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime) // a signal may have interrupted it
		defer cancel()
		return errors.Join(err, e.save(ctx))
	}
	if err := e.finish(ctx); err != nil {
		return err
	}
	d := &e.done
	return e.People.Record(ctx, e.order.By, "person.erased", e.order.CompanyID, d.Run, map[string]any{
		"cancelled": d.Cancelled, "emails": d.Emails, "copies": d.Copies, "emailLogs": d.EmailLogs, "mailingEntries": d.Entries,
		"deadLetters": d.DeadLetters, "recipients": d.Recipients, "suppressions": d.Suppressions, "files": d.Files, "busy": d.Busy, "unreadFiles": len(d.UndecryptableFiles),
		"addresses": len(e.person.Addresses), "sharedAddresses": d.Shared, "tables": d.Receipt.Tables,
	})
}

// run erases until nothing more is found. Recipients come last: updates accepted before their
// deletion are void. What such updates still contain, for example a recipient import accepted
// meanwhile, is erased by the following rounds.
func (e *erasure) run(ctx context.Context) error {
	if err := e.rounds(ctx, time.Now().Add(e.order.Timeout)); err != nil || e.done.Busy > 0 || len(e.done.UndecryptableFiles) > 0 {
		return err
	}
	deletion, err := e.deletion(ctx)
	if err != nil {
		return err
	}
	if err := e.eraseRecipients(ctx, deletion, true); err != nil {
		return err
	}
	if err := e.awaitWriters(ctx, time.Now().Add(max(e.order.Timeout, writerTimeout))); err != nil {
		return err
	}
	// An upload makes ids until it ends, so the erasure also voids what was accepted during the wait. Later rows belong to a
	// person who was stored again after the erasure.
	if deletion, err = e.deletion(ctx); err != nil {
		return err
	}
	e.scan.Until = deletion
	if err := e.rounds(ctx, time.Now().Add(e.order.Timeout)); err != nil || e.done.Busy > 0 {
		return err
	}
	return e.eraseRecipients(ctx, deletion, false)
}

// deletion returns an id that is greater than those made before, for which it reads Postgres's clock again: an erasure may
// last longer than a server is the primary.
func (e *erasure) deletion(ctx context.Context) (uuid.UUID, error) {
	if err := e.Store.ReadClock(ctx); err != nil {
		return uuid.Nil, err
	}
	return uuidv7.New(), nil
}

// rounds scans all tables until a whole round changes nothing.
func (e *erasure) rounds(ctx context.Context, deadline time.Time) error {
	for round := 1; ; round++ {
		before := e.changed()
		clear(e.busy)
		e.done.UndecryptableFiles = e.done.UndecryptableFiles[:0]
		if err := e.once(ctx); err != nil {
			return err
		}
		e.done.Busy = len(e.busy)
		quiet := e.changed() == before
		if quiet && e.done.Busy == 0 || (quiet || round >= maxRounds) && time.Now().After(deadline) {
			return nil
		}
		if quiet {
			if err := pause(ctx, askEvery); err != nil {
				return err
			}
		}
	}
}

func (e *erasure) changed() int {
	n := e.done.Cancelled
	for _, rows := range e.ledger.tables {
		n += rows
	}
	return n
}

// finish waits for the dispatchers and creates the receipt.
func (e *erasure) finish(ctx context.Context) error {
	tasks, err := e.People.CountErasedTasks(ctx, e.erasing)
	for deadline := time.Now().Add(e.order.TaskTimeout); err == nil && tasks.Open > 0 && time.Now().Before(deadline); {
		e.report("tasks in Redis", e.changed())
		if err := pause(ctx, askEvery/4); err != nil {
			return err
		}
		tasks, err = e.People.CountErasedTasks(ctx, e.erasing)
	}
	if err != nil {
		return err
	}
	kept, err := e.People.Suppressions(ctx, e.person.Person)
	if err != nil {
		return err
	}
	if err := e.save(ctx); err != nil {
		return err
	}
	// A concurrent run for the same person may have finished this one, so its own rows are not read back.
	continued, err := e.People.Receipts(ctx, e.erasing[1:])
	if err != nil {
		return err
	}
	if err := e.ledger.addSaved(continued); err != nil {
		return err
	}
	e.done.Receipt = e.ledger.receipt(e.person.Person, kept, tasks)
	if !e.done.Complete() {
		return nil
	}
	return e.People.FinishErasure(ctx, e.erasing)
}

// emails calls do with batches of the emails. Emails that were busy before are processed one by
// one, because a locked one delays its whole batch. Emails that are busy in this round are skipped.
func (e *erasure) emails(ctx context.Context, ids []uuid.UUID, do func([]uuid.UUID) (busy []string, err error)) error {
	try := func(some []uuid.UUID) error {
		busy, err := do(some)
		for _, id := range busy {
			e.busy[id], e.held[id] = true, true
		}
		return err
	}
	var free []uuid.UUID
	for _, id := range ids {
		switch name := id.String(); {
		case e.busy[name]:
		case !e.held[name]:
			free = append(free, id)
		default:
			if err := try([]uuid.UUID{id}); err != nil {
				return err
			}
		}
	}
	return e.batches(ctx, free, try)
}

// batches calls do with batches of the ids, saves the ledger and pauses after each.
func (e *erasure) batches(ctx context.Context, ids []uuid.UUID, do func([]uuid.UUID) error) error {
	for some := range slices.Chunk(ids, eraseBatch) {
		start := time.Now()
		if err := do(some); err != nil {
			return err
		}
		if err := e.save(ctx); err != nil {
			return err
		}
		if len(some) == eraseBatch {
			if err := pause(ctx, min(time.Since(start), maxRest)); err != nil {
				return err
			}
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
