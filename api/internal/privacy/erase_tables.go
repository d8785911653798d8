package privacy

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"email-gateway/api/internal/mailing"
	"email-gateway/shared/store"
)

// once goes through everything but the recipients.
func (e *erasure) once(ctx context.Context) error {
	if err := e.eraseMailings(ctx); err != nil {
		return err
	}
	for _, table := range []store.PersonTable{store.PersonEmails, store.PersonLogs} {
		e.tell(string(table), e.changed())
		if err := e.each(ctx, e.person, table, e.scan, func(rows []store.PersonRow) error {
			named := addressesOf(rows)
			if err := e.eraseEmails(ctx, ids(rows, false), named); err != nil {
				return err
			}
			return e.eraseCopies(ctx, ids(rows, true), named)
		}); err != nil {
			return err
		}
	}
	if err := e.eraseLetters(ctx); err != nil {
		return err
	}
	return e.eraseByAddress(ctx)
}

func (e *erasure) eraseEmails(ctx context.Context, ids []uuid.UUID, named addressesByID) error {
	return e.emails(ctx, ids, func(some []uuid.UUID) ([]string, error) {
		did, err := e.Store.EraseEmails(ctx, e.order.By, e.order.CompanyID, e.done.Run, some)
		e.done.Cancelled += did.Cancelled
		e.done.Emails += len(did.Emails)
		e.done.EmailLogs += len(did.Logs)
		e.done.Recipients += len(did.News)
		for _, rows := range []struct {
			table string
			ids   []string
		}{
			{tableOutbox, did.Emails}, {tableOutbox, did.News}, {tableIntakes, did.Intakes}, {tableLogs, did.Logs}, {tableEvents, did.Events}, {tableNotices, did.Notices},
		} {
			e.ledger.addIDs(rows.table, rows.ids, named)
		}
		return did.Busy, err
	})
}

func (e *erasure) eraseCopies(ctx context.Context, ids []uuid.UUID, named addressesByID) error {
	return e.emails(ctx, ids, func(some []uuid.UUID) ([]string, error) {
		did, err := e.Store.EraseCopies(ctx, e.person.Person, e.done.Run, some)
		e.ledger.addIDs(tableOutbox, did.Emails, named)
		e.ledger.addIDs(tableLogs, did.Logs, named)
		e.ledger.addIDs(tableEvents, did.Events, named)
		for _, id := range slices.Concat(did.Emails, did.Logs, did.Events) {
			if !e.copied[id] {
				e.copied[id] = true
				e.done.Copies++
			}
		}
		return did.Busy, err
	})
}

func (e *erasure) eraseLetters(ctx context.Context) error {
	e.tell(string(store.PersonDeadLetters), e.changed())
	return e.each(ctx, e.person, store.PersonDeadLetters, e.scan, func(rows []store.PersonRow) error {
		named := addressesOf(rows)
		if err := batches(ctx, ids(rows, false), func(some []uuid.UUID) error {
			did, err := e.Store.EraseDeadLetters(ctx, e.order.By, e.order.CompanyID, e.done.Run, some)
			e.done.DeadLetters += len(did)
			e.ledger.addIDs(tableLetters, did, named)
			return err
		}); err != nil {
			return err
		}
		return batches(ctx, ids(rows, true), func(some []uuid.UUID) error {
			did, err := e.Store.EraseLetterCopies(ctx, e.person.Person, some)
			e.done.Copies += len(did)
			e.ledger.addIDs(tableLetters, did, named)
			return err
		})
	})
}

// eraseByAddress erases what is found by an address alone.
func (e *erasure) eraseByAddress(ctx context.Context) error {
	p := e.person.Person
	suppressed, err := e.Store.EraseSuppressions(ctx, p, e.order.Forget)
	for _, address := range suppressed {
		e.ledger.add(tableSuppressions, address)
	}
	if err != nil {
		return err
	}
	notes, err := e.Store.EraseOtherNotes(ctx, p)
	for range notes {
		e.ledger.add(tableSuppressions)
	}
	e.done.Suppressions += len(suppressed) + notes
	if err != nil {
		return err
	}
	for _, rows := range []struct {
		table string
		erase func(context.Context, store.Person) ([]string, error)
	}{
		{tableReplays, e.Store.EraseReplays}, {tableMailings, e.Store.EraseMailingSenders},
	} {
		did, err := rows.erase(ctx, p)
		if err != nil {
			return err
		}
		e.ledger.addIDs(rows.table, did, nil)
	}
	return nil
}

// eraseMailings takes the person out of the company's mailings. A file that names him is
// deleted as a whole: no program reads it again once the upload has taken it in, and what
// it said of others stands in the entries. One that an entry of his came from names him,
// perhaps by something that is not looked for in files, such as an id of the company's: it
// goes before the entry, which alone tells that.
func (e *erasure) eraseMailings(ctx context.Context) error {
	mailings, err := e.Store.PersonMailings(ctx, e.order.CompanyID)
	if err != nil {
		return err
	}
	for _, m := range mailings {
		e.tell("mailing "+m.ID.String(), e.changed())
		if err := e.eraseEntries(ctx, &m); err != nil {
			return err
		}
		if !m.HasFile {
			continue
		}
		lines, err := e.linesOf(ctx, e.person, m)
		switch {
		case unreadable(err):
			e.done.Unread = append(e.done.Unread, m.ID)
			continue
		case err == nil && len(lines) > 0:
			err = e.deleteFile(ctx, &m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *erasure) eraseEntries(ctx context.Context, m *store.PersonMailing) error {
	return pages(e.scan, func(scan store.PersonScan) (store.PersonPage, error) {
		return e.Store.PersonEntriesOf(ctx, e.person.Person, *m, scan)
	}, func(rows []store.PersonRow) error {
		if m.HasFile {
			if err := e.deleteFile(ctx, m); err != nil {
				return err
			}
		}
		named := addressesOf(rows)
		return batches(ctx, ids(rows, false), func(some []uuid.UUID) error {
			// First their emails, which are known by the same ids, and perhaps by nothing else any more.
			if err := e.eraseEmails(ctx, some, named); err != nil {
				return err
			}
			// What is being sent may have to be made from its entry once more.
			ended := slices.DeleteFunc(slices.Clone(some), func(id uuid.UUID) bool { return e.busy[id.String()] })
			did, cancelled, err := e.Store.EraseEntries(ctx, m.ID, ended)
			e.done.Entries += len(did)
			e.done.Cancelled += cancelled
			e.ledger.addIDs(tableEntries, did, named)
			return err
		})
	})
}

func (e *erasure) deleteFile(ctx context.Context, m *store.PersonMailing) error {
	if err := e.Bucket.Delete(ctx, mailing.FileKey(e.order.CompanyID, m.ID)); err != nil {
		return fmt.Errorf("delete the file of mailing %s: %w", m.ID, err)
	}
	n, err := e.Store.MarkFilesDeleted(ctx, []uuid.UUID{m.ID})
	e.done.Files += n
	for range n {
		e.ledger.add(uploadedFiles)
	}
	m.HasFile = false
	return err
}

// eraseRecipients leaves a row of each recipient that says when it was erased. With all
// false, one that somebody has written again since then stays.
func (e *erasure) eraseRecipients(ctx context.Context, deletion uuid.UUID, all bool) error {
	e.tell(string(store.PersonRecipients), e.changed())
	return e.each(ctx, e.person, store.PersonRecipients, e.scan, func(rows []store.PersonRow) error {
		return batches(ctx, ids(rows, false), func(some []uuid.UUID) error {
			did, err := e.Store.EraseRecipients(ctx, e.order.CompanyID, deletion, some, all)
			e.done.Recipients += len(did)
			e.ledger.addIDs(tableRecipients, did, addressesOf(rows))
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
