package privacy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store"
)

// Erased is what an erasure has changed.
type Erased struct {
	Run          uuid.UUID `json:"run"`       // by which the audit knows it
	Cancelled    int       `json:"cancelled"` // emails and entries that had not been sent
	Emails       int       `json:"emails"`
	Copies       int       `json:"copies"` // emails to others, that the person's address was taken out of
	EmailLogs    int       `json:"emailLogs"`
	Entries      int       `json:"mailingEntries"`
	DeadLetters  int       `json:"deadLetters"`
	Recipients   int       `json:"recipients"` // with news of them that waited
	Suppressions int       `json:"suppressions"`
	Files        int       `json:"files"` // deleted whole
	// Busy emails are being sent, or wait for SES to say whether it took them, or another
	// transaction has them locked.
	Busy int `json:"busy"`
	// Writing is how many transactions that began before the person was erased have not
	// ended, such as an upload: what they write is not visible yet.
	Writing int `json:"writing"`
	// Unread are mailings whose files cannot be opened: nobody knows whether they name the
	// person. Until they are gone, or their key is there, the recipients stay.
	Unread []uuid.UUID `json:"unreadFiles"`
	// Shared are addresses that others have too. Rows that name the person by such a one
	// alone are theirs as well, and stay.
	Shared  int     `json:"sharedAddresses"`
	Receipt Receipt `json:"receipt"`
}

// Complete says that nothing is left to be erased by another run.
func (e *Erased) Complete() bool { return e.Busy == 0 && e.Writing == 0 && len(e.Unread) == 0 }

// Order is what is to be erased, by whom, and how.
type Order struct {
	Query
	By store.Operator
	// Forget deletes the suppressions of the person's addresses too.
	Forget bool
	// Patience is how long emails that are being sent are waited for, and then transactions
	// that began before the person was erased.
	Patience time.Duration
	// TaskPatience is how long a dispatcher has to remove tasks from Redis. What is not
	// removed by then is removed later.
	TaskPatience time.Duration
}

const (
	// eraseBatch rows go in one commit: some 100 ms, when each has to be cancelled first.
	eraseBatch = 100
	// maxRounds is how often everything is looked through. The second round finds what a
	// program was writing during the first, and usually nothing.
	maxRounds = 10
	askEvery  = time.Second
	// writerPatience is enough for every transaction but that of an upload, or one of a program
	// that shares the database.
	writerPatience = 2 * time.Second
	// maxRest bounds the pause after a batch, which is as long as the batch took: an erasure
	// of 100,000 emails uses half of one connection, and leaves the disk to others.
	maxRest = time.Second
)

// erasure is one run.
type erasure struct {
	*Archive
	order   Order
	person  subject
	done    Erased
	ledger  ledger
	copied  map[string]bool // emails to others that name the person
	busy    map[string]bool // by id, in this round
	held    map[string]bool // emails that were locked or being sent in some round
	scan    store.PersonScan
	erasing []uuid.UUID // this run, and those that it continues
}

// Erase takes the person that the query means out of all tables and files. It ends when a
// whole round finds nothing more, or not Complete: then it is to be run again later. It
// may be broken off anywhere and run again: what the person is known by is stored until it
// is complete.
func (a *Archive) Erase(ctx context.Context, o Order) (Erased, error) {
	run, err := uuid.NewV7()
	if err != nil {
		return Erased{}, fmt.Errorf("make id: %w", err)
	}
	e := erasure{
		Archive: a, order: o, ledger: newLedger(), copied: map[string]bool{}, busy: map[string]bool{}, held: map[string]bool{}, scan: store.PersonScan{Until: uuid.Max},
		done: Erased{Run: run, Unread: []uuid.UUID{}},
	}
	if e.person, err = a.find(ctx, o.Query); err != nil {
		return e.done, err
	}
	// That it was begun is known even if it never ends.
	if err := a.Store.RecordPerson(ctx, o.By, "person.erase", o.CompanyID, run, map[string]any{"by": o.by(), "forgetSuppressions": o.Forget}); err != nil {
		return e.done, err
	}
	if e.erasing, err = a.Store.BeginErasure(ctx, run, &e.person.Person); err != nil {
		return e.done, err
	}
	e.person = a.subject(e.person.Person, o.Query)
	e.done.Shared = len(e.person.Shared)
	if err := e.run(ctx); err != nil {
		return e.done, err
	}
	if err := e.finish(ctx); err != nil {
		return e.done, err
	}
	d := &e.done
	return e.done, a.Store.RecordPerson(ctx, o.By, "person.erased", o.CompanyID, run, map[string]any{
		"cancelled": d.Cancelled, "emails": d.Emails, "copies": d.Copies, "emailLogs": d.EmailLogs, "mailingEntries": d.Entries,
		"deadLetters": d.DeadLetters, "recipients": d.Recipients, "suppressions": d.Suppressions, "files": d.Files, "busy": d.Busy, "unreadFiles": len(d.Unread),
		"addresses": len(e.person.Addresses), "sharedAddresses": d.Shared, "tables": e.ledger.tables,
	})
}

// run erases until nothing more is found. Recipients come last: a statement about one that
// was accepted before the row went is void. What such a statement still holds, an import
// that was accepted meanwhile say, is erased by the rounds after that.
func (e *erasure) run(ctx context.Context) error {
	if err := e.rounds(ctx, time.Now().Add(e.order.Patience)); err != nil || e.done.Busy > 0 || len(e.done.Unread) > 0 {
		return err
	}
	deletion, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make id of erasure: %w", err)
	}
	if err := e.eraseRecipients(ctx, deletion, true); err != nil {
		return err
	}
	if err := e.awaitWriters(ctx, time.Now().Add(max(e.order.Patience, writerPatience))); err != nil {
		return err
	}
	e.scan.Until = deletion // later emails are about whom the company has got to know again
	if err := e.rounds(ctx, time.Now().Add(e.order.Patience)); err != nil || e.done.Busy > 0 {
		return err
	}
	return e.eraseRecipients(ctx, deletion, false)
}

// rounds goes through all tables until a whole round changes nothing.
func (e *erasure) rounds(ctx context.Context, deadline time.Time) error {
	for round := 1; ; round++ {
		before := e.changed()
		clear(e.busy)
		e.done.Unread = e.done.Unread[:0]
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

// awaitWriters waits until the transactions that are writing now have ended. Only then are
// all rows visible that were written before the recipients went.
func (e *erasure) awaitWriters(ctx context.Context, deadline time.Time) error {
	open, err := e.Store.Writers(ctx)
	for {
		e.done.Writing = len(open)
		if err != nil || len(open) == 0 || time.Now().After(deadline) {
			return err
		}
		if err := pause(ctx, askEvery/10); err != nil {
			return err
		}
		var still []string
		still, err = e.Store.Writers(ctx)
		open = slices.DeleteFunc(open, func(name string) bool { return !slices.Contains(still, name) })
	}
}

// finish waits for the dispatchers and makes the receipt.
func (e *erasure) finish(ctx context.Context) error {
	tasks, err := e.Store.CountErasedTasks(ctx, e.erasing)
	for deadline := time.Now().Add(e.order.TaskPatience); err == nil && tasks.Open > 0 && time.Now().Before(deadline); {
		e.tell("tasks in Redis", e.changed())
		if err := pause(ctx, askEvery/4); err != nil {
			return err
		}
		tasks, err = e.Store.CountErasedTasks(ctx, e.erasing)
	}
	if err != nil {
		return err
	}
	kept, err := e.Store.PersonSuppressions(ctx, e.person.Person)
	if err != nil {
		return err
	}
	e.done.Receipt = e.ledger.receipt(e.person.Person, kept, tasks)
	if !e.done.Complete() {
		return nil
	}
	return e.Store.FinishErasure(ctx, e.erasing)
}

// emails calls do with some of the emails at a time, and with those that were busy before one
// by one: a locked one makes all of its batch wait. What is busy in this round is left alone.
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
	return batches(ctx, free, try)
}

// batches calls do with some of the ids at a time, and rests after each.
func batches(ctx context.Context, ids []uuid.UUID, do func([]uuid.UUID) error) error {
	for some := range slices.Chunk(ids, eraseBatch) {
		begun := time.Now()
		if err := do(some); err != nil {
			return err
		}
		if len(some) == eraseBatch {
			if err := pause(ctx, min(time.Since(begun), maxRest)); err != nil {
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
