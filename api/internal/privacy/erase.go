package privacy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/mailing"
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
	// Busy emails are being sent, or wait for SES to say whether it took them.
	Busy int `json:"busy"`
	// Unread are mailings whose files cannot be opened: nobody knows whether they name the
	// person. Until they are gone, or their key is there, the recipients stay.
	Unread []uuid.UUID `json:"unreadFiles"`
	// Shared are addresses that others have too. Rows that name the person by such a one
	// alone are theirs as well, and stay.
	Shared int `json:"sharedAddresses"`

	busy map[string]bool // by id, in this round
}

// Order is what is to be erased, by whom, and how.
type Order struct {
	Query
	By store.Operator
	// Forget deletes the suppressions of his addresses too.
	Forget bool
	// Patience is how long emails that are being sent are waited for.
	Patience time.Duration
}

const (
	// eraseBatch rows go in one commit: some 100 ms, when each has to be cancelled first.
	eraseBatch = 100
	// maxRounds is how often everything is looked through. The second round finds what a
	// program was writing during the first, and usually nothing.
	maxRounds = 10
	askEvery  = time.Second
)

// Erase takes the person that the query means out of all tables and files. It ends when a
// whole round finds nothing more, or with Busy > 0 or something Unread: then it is to be
// run again later. It may be broken off anywhere and run again.
func (a *Archive) Erase(ctx context.Context, o Order) (Erased, error) {
	run, err := uuid.NewV7()
	if err != nil {
		return Erased{}, fmt.Errorf("make id: %w", err)
	}
	done := Erased{Run: run, Unread: []uuid.UUID{}, busy: map[string]bool{}}
	p, err := a.find(ctx, o.Query)
	if err != nil {
		return done, err
	}
	done.Shared = len(p.Shared)
	// That it was begun is known even if it never ends.
	if err := a.Store.RecordPerson(ctx, o.By, "person.erase", o.CompanyID, run, map[string]any{"by": o.by(), "forgetSuppressions": o.Forget}); err != nil {
		return done, err
	}
	deadline := time.Now().Add(o.Patience)
	for round := 1; ; round++ {
		before := done.changed()
		clear(done.busy)
		done.Unread = done.Unread[:0]
		if err := a.eraseOnce(ctx, p, o, &done); err != nil {
			return done, err
		}
		done.Busy = len(done.busy)
		quiet := done.changed() == before
		if quiet && done.Busy == 0 || round >= maxRounds && time.Now().After(deadline) || quiet && time.Now().After(deadline) {
			break
		}
		if quiet {
			select {
			case <-ctx.Done():
				return done, context.Cause(ctx)
			case <-time.After(askEvery):
			}
		}
	}
	if done.Busy == 0 && len(done.Unread) == 0 {
		if err := a.eraseRecipients(ctx, p, &done); err != nil {
			return done, err
		}
	}
	return done, a.Store.RecordPerson(ctx, o.By, "person.erased", o.CompanyID, run, map[string]any{
		"cancelled": done.Cancelled, "emails": done.Emails, "copies": done.Copies, "emailLogs": done.EmailLogs, "mailingEntries": done.Entries,
		"deadLetters": done.DeadLetters, "recipients": done.Recipients, "suppressions": done.Suppressions, "files": done.Files, "busy": done.Busy, "unreadFiles": len(done.Unread),
	})
}

func (e *Erased) changed() int {
	return e.Cancelled + e.Emails + e.Copies + e.EmailLogs + e.Entries + e.DeadLetters + e.Recipients + e.Suppressions + e.Files
}

// eraseOnce goes through everything but the recipients: by their rows somebody who begins
// anew finds the rest.
func (a *Archive) eraseOnce(ctx context.Context, p subject, o Order, done *Erased) error {
	if err := a.eraseMailings(ctx, p, o, done); err != nil {
		return err
	}
	for _, table := range []store.PersonTable{store.PersonEmails, store.PersonLogs} {
		a.tell(string(table), done.changed())
		if err := a.each(ctx, p, table, false, func(rows []store.PersonRow) error {
			if err := a.eraseEmails(ctx, o, ids(rows, false), done); err != nil {
				return err
			}
			return batches(ids(rows, true), func(some []uuid.UUID) error {
				n, err := a.Store.EraseCopies(ctx, p.Person, some)
				done.Copies += n
				return err
			})
		}); err != nil {
			return err
		}
	}
	a.tell(string(store.PersonDeadLetters), done.changed())
	err := a.each(ctx, p, store.PersonDeadLetters, false, func(rows []store.PersonRow) error {
		if err := batches(ids(rows, false), func(some []uuid.UUID) error {
			n, err := a.Store.EraseDeadLetters(ctx, o.By, o.CompanyID, some)
			done.DeadLetters += n
			return err
		}); err != nil {
			return err
		}
		return batches(ids(rows, true), func(some []uuid.UUID) error {
			n, err := a.Store.EraseLetterCopies(ctx, p.Person, some)
			done.Copies += n
			return err
		})
	})
	if err != nil {
		return err
	}
	n, err := a.Store.EraseSuppressions(ctx, p.Person, o.Forget)
	if err != nil {
		return err
	}
	done.Suppressions += n
	_, err = a.Store.EraseReplays(ctx, p.Person)
	return err
}

func (a *Archive) eraseEmails(ctx context.Context, o Order, ids []uuid.UUID, done *Erased) error {
	return batches(ids, func(some []uuid.UUID) error {
		did, err := a.Store.EraseEmails(ctx, o.By, o.CompanyID, some)
		done.Cancelled += did.Cancelled
		done.Emails += did.Emails
		done.EmailLogs += did.Logs
		done.Recipients += did.News
		for _, id := range did.Busy {
			done.busy[id] = true
		}
		return err
	})
}

// eraseMailings takes the person out of the company's mailings. A file that names him is
// deleted as a whole: no program reads it again once the upload has taken it in, and what
// it said of others stands in the entries. One that an entry of his came from names him,
// perhaps by something that is not looked for in files, such as an id of the company's: it
// goes before the entry, which alone tells that.
func (a *Archive) eraseMailings(ctx context.Context, p subject, o Order, done *Erased) error {
	mailings, err := a.Store.PersonMailings(ctx, o.CompanyID)
	if err != nil {
		return err
	}
	for _, m := range mailings {
		a.tell("mailing "+m.ID.String(), done.changed())
		err := pages(func(after uuid.UUID) (store.PersonPage, error) {
			return a.Store.PersonEntriesOf(ctx, p.Person, m, after, false)
		}, func(rows []store.PersonRow) error {
			if m.HasFile {
				if err := a.deleteFile(ctx, m, o.CompanyID, done); err != nil {
					return err
				}
				m.HasFile = false
			}
			return batches(ids(rows, false), func(some []uuid.UUID) error {
				// First their emails, which are known by the same ids, and perhaps by nothing else any more.
				if err := a.eraseEmails(ctx, o, some, done); err != nil {
					return err
				}
				// What is being sent may have to be made from its entry once more.
				ended := slices.DeleteFunc(slices.Clone(some), func(id uuid.UUID) bool { return done.busy[id.String()] })
				entries, cancelled, err := a.Store.EraseEntries(ctx, m.ID, ended)
				done.Entries += entries
				done.Cancelled += cancelled
				return err
			})
		})
		if err != nil {
			return err
		}
		if !m.HasFile {
			continue
		}
		lines, err := a.linesOf(ctx, p, m)
		switch {
		case unreadable(err):
			done.Unread = append(done.Unread, m.ID)
			continue
		case err == nil && len(lines) > 0:
			err = a.deleteFile(ctx, m, o.CompanyID, done)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *Archive) deleteFile(ctx context.Context, m store.PersonMailing, company uuid.UUID, done *Erased) error {
	if err := a.Bucket.Delete(ctx, mailing.FileKey(company, m.ID)); err != nil {
		return fmt.Errorf("delete the file of mailing %s: %w", m.ID, err)
	}
	n, err := a.Store.MarkFilesDeleted(ctx, []uuid.UUID{m.ID})
	done.Files += n
	return err
}

func (a *Archive) eraseRecipients(ctx context.Context, p subject, done *Erased) error {
	a.tell(string(store.PersonRecipients), done.changed())
	return a.each(ctx, p, store.PersonRecipients, false, func(rows []store.PersonRow) error {
		return batches(ids(rows, false), func(some []uuid.UUID) error {
			n, err := a.Store.EraseRecipients(ctx, p.CompanyID, some)
			done.Recipients += n
			return err
		})
	})
}

// ids are those of the rows that are the person's own, or copies.
func ids(rows []store.PersonRow, copies bool) []uuid.UUID {
	var some []uuid.UUID
	for _, r := range rows {
		if r.Copy == copies {
			some = append(some, r.ID)
		}
	}
	return some
}

func batches(ids []uuid.UUID, do func([]uuid.UUID) error) error {
	for some := range slices.Chunk(ids, eraseBatch) {
		if err := do(some); err != nil {
			return err
		}
	}
	return nil
}
