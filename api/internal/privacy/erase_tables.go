package privacy

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"email-gateway/api/internal/mailing"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/person"
	"email-gateway/shared/store/retention"
)

// once scans everything except the recipients.
func (e *erasure) once(ctx context.Context) error {
	if err := e.eraseMailings(ctx); err != nil {
		return err
	}
	for _, table := range []person.Table{person.Emails, person.Logs} {
		e.report(string(table), e.changed())
		if err := e.each(ctx, e.person, table, e.scan, func(rows []person.Row) error {
			named := addressesOf(rows)
			if err := e.eraseEmails(ctx, ids(rows, false), named); err != nil {
				return err
			}
			return e.eraseCopies(ctx, ids(rows, true), named)
		}); err != nil {
			return err
		}
	}
	if err := e.eraseDeadLetters(ctx); err != nil {
		return err
	}
	return e.eraseByAddress(ctx)
}

func (e *erasure) eraseEmails(ctx context.Context, ids []uuid.UUID, named addressesByID) error {
	return e.emails(ctx, ids, func(some []uuid.UUID) ([]string, error) {
		did, err := e.People.EraseEmails(ctx, e.order.By, e.order.CompanyID, e.done.Run, some)
		e.done.Cancelled += did.Cancelled
		e.done.Emails += len(did.Emails)
		e.done.EmailLogs += len(did.Logs)
		e.done.Recipients += len(did.Imports)
		for _, rows := range []struct {
			table string
			ids   []string
		}{
			{tableOutbox, did.Emails}, {tableOutbox, did.Imports}, {tableIntakes, did.PendingImports}, {tableLogs, did.Logs}, {tableEvents, did.Events}, {tableNotifications, did.Notifications}, {tableAttachments, did.Attachments},
		} {
			e.ledger.addIDs(rows.table, rows.ids, named)
		}
		if err != nil {
			return did.Busy, err
		}
		return did.Busy, e.eraseFiles(ctx, did.Files)
	})
}

// eraseFiles deletes the files that only erased emails attached. What a crash leaves is deleted by the dispatcher: the rows are
// marked already, and an object without a row is an orphan.
func (e *erasure) eraseFiles(ctx context.Context, files []string) error {
	if len(files) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(files))
	for i, text := range files {
		var err error
		if ids[i], err = uuid.Parse(text); err != nil {
			return fmt.Errorf("read file id: %w", err)
		}
	}
	gone, err := file.New(e.Store.DB()).DeleteErased(ctx, e.order.CompanyID, ids)
	if err != nil {
		return err
	}
	for _, object := range gone {
		e.done.Files++
		e.ledger.add(storedFiles)
		if err := e.Bucket.Delete(ctx, object.Key()); err != nil {
			return fmt.Errorf("delete stored file %s: %w", object.ID, err)
		}
	}
	return nil
}

func (e *erasure) eraseCopies(ctx context.Context, ids []uuid.UUID, named addressesByID) error {
	return e.emails(ctx, ids, func(some []uuid.UUID) ([]string, error) {
		did, err := e.People.EraseCopies(ctx, e.person.Person, e.done.Run, some)
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

func (e *erasure) eraseDeadLetters(ctx context.Context) error {
	e.report(string(person.DeadLetters), e.changed())
	return e.each(ctx, e.person, person.DeadLetters, e.scan, func(rows []person.Row) error {
		named := addressesOf(rows)
		if err := e.batches(ctx, ids(rows, false), func(some []uuid.UUID) error {
			did, err := e.People.EraseDeadLetters(ctx, e.order.By, e.order.CompanyID, e.done.Run, some)
			e.done.DeadLetters += len(did)
			e.ledger.addIDs(tableLetters, did, named)
			return err
		}); err != nil {
			return err
		}
		return e.batches(ctx, ids(rows, true), func(some []uuid.UUID) error {
			did, err := e.People.EraseLetterCopies(ctx, e.person.Person, some)
			e.done.Copies += len(did)
			e.ledger.addIDs(tableLetters, did, named)
			return err
		})
	})
}

// eraseByAddress erases rows that are found only by an address.
func (e *erasure) eraseByAddress(ctx context.Context) error {
	p := e.person.Person
	suppressed, err := e.People.EraseSuppressions(ctx, p, e.order.Forget)
	for _, address := range suppressed {
		e.ledger.add(tableSuppressions, address)
	}
	if err != nil {
		return err
	}
	notes, err := e.People.EraseOtherNotes(ctx, p)
	for range notes {
		e.ledger.add(tableSuppressions)
	}
	e.done.Suppressions += len(suppressed) + notes
	if err != nil {
		return err
	}
	for _, rows := range []struct {
		table string
		erase func(context.Context, person.Person) ([]string, error)
	}{
		{tableReplays, e.People.EraseReplays}, {tableMailings, e.People.EraseMailingSenders},
	} {
		did, err := rows.erase(ctx, p)
		if err != nil {
			return err
		}
		e.ledger.addIDs(rows.table, did, nil)
	}
	return e.save(ctx)
}

// eraseMailings erases the person from the company's mailings. A file that names the person is
// deleted as a whole: no program reads it after the ingestion, and the data of other people is in
// the entries. A file from which one of the person's entries was created also names the person,
// perhaps by something that is not searched for in files, such as an id of the company; it is
// deleted before the entry, which is the only evidence.
func (e *erasure) eraseMailings(ctx context.Context) error {
	mailings, err := e.People.Mailings(ctx, e.order.CompanyID)
	if err != nil {
		return err
	}
	for _, m := range mailings {
		e.report("mailing "+m.ID.String(), e.changed())
		if err := e.eraseEntries(ctx, &m); err != nil {
			return err
		}
		if !m.HasFile {
			continue
		}
		lines, err := e.linesOf(ctx, e.person, m)
		switch {
		case unreadable(err):
			e.done.UndecryptableFiles = append(e.done.UndecryptableFiles, m.ID)
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

func (e *erasure) eraseEntries(ctx context.Context, m *person.Mailing) error {
	return pages(e.scan, func(scan person.Scan) (person.Page, error) {
		return e.People.EntriesOf(ctx, e.person.Person, *m, scan)
	}, func(rows []person.Row) error {
		if m.HasFile {
			if err := e.deleteFile(ctx, m); err != nil {
				return err
			}
		}
		named := addressesOf(rows)
		return e.batches(ctx, ids(rows, false), func(some []uuid.UUID) error {
			// First their emails, which have the same ids and may have no other identifier left.
			if err := e.eraseEmails(ctx, some, named); err != nil {
				return err
			}
			// An email being sent may have to be created from its entry again.
			ended := slices.DeleteFunc(slices.Clone(some), func(id uuid.UUID) bool { return e.busy[id.String()] })
			did, cancelled, err := e.People.EraseEntries(ctx, m.ID, ended)
			e.done.Entries += len(did)
			e.done.Cancelled += cancelled
			e.ledger.addIDs(tableEntries, did, named)
			return err
		})
	})
}

func (e *erasure) deleteFile(ctx context.Context, m *person.Mailing) error {
	if err := e.Bucket.Delete(ctx, mailing.FileKey(e.order.CompanyID, m.ID)); err != nil {
		return fmt.Errorf("delete the file of mailing %s: %w", m.ID, err)
	}
	n, err := retention.New(e.Store.DB()).MarkFilesDeleted(ctx, []uuid.UUID{m.ID})
	e.done.Files += n
	for range n {
		e.ledger.add(uploadedFiles)
	}
	m.HasFile = false
	if err != nil {
		return err
	}
	return e.save(ctx)
}

// eraseRecipients replaces each recipient by a tombstone with the time of the erasure, and clears those that other people
// share: a tombstone would make their emails void that are not expanded or imported yet. If all is false, recipients that
// were written again since then are kept.
func (e *erasure) eraseRecipients(ctx context.Context, deletion uuid.UUID, all bool) error {
	e.report(string(person.Recipients), e.changed())
	return e.each(ctx, e.person, person.Recipients, e.scan, func(rows []person.Row) error {
		return e.batches(ctx, ids(rows, false), func(some []uuid.UUID) error {
			own := slices.DeleteFunc(slices.Clone(some), e.person.SharesRecipient)
			shared := slices.DeleteFunc(slices.Clone(some), func(id uuid.UUID) bool { return !e.person.SharesRecipient(id) })
			cleared, err := e.People.ClearSharedRecipients(ctx, e.person.Person, deletion, shared, all)
			var erased []string
			if err == nil {
				erased, err = e.People.EraseRecipients(ctx, e.order.CompanyID, deletion, own, all)
			}
			did := slices.Concat(cleared, erased)
			e.done.Recipients += len(did)
			e.ledger.addIDs(tableRecipients, did, addressesOf(rows))
			return err
		})
	})
}

// ids returns the ids of the person's own rows, or of copies.
func ids(rows []person.Row, copies bool) []uuid.UUID {
	var some []uuid.UUID
	for _, r := range rows {
		if r.Copy == copies {
			some = append(some, r.ID)
		}
	}
	return some
}
