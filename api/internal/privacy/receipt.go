package privacy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"email-gateway/shared/store/person"
	"email-gateway/shared/store/suppression"
)

// Receipt lists the number of rows that an erasure changed, by address and table. It includes the rows that
// the unfinished erasures changed that this one continues.
type Receipt struct {
	// Addresses are those of the person, including those without rows.
	Addresses []string `json:"addresses"`
	// SharedAddresses are shared with other people. Rows that name the person only by such an
	// address are kept, and so are its suppressions.
	SharedAddresses []string `json:"sharedAddresses"`
	// SharedExternalIDs are shared with other people. Rows that name the person only by such an id are kept.
	SharedExternalIDs []string `json:"sharedExternalIds"`
	// SharedNumbers are the same for numbers; see KnownBy.
	SharedNumbers []string      `json:"sharedNumbers"`
	Rows          []ReceiptRows `json:"rows"`
	// Tables counts each row once, regardless of its number of addresses.
	Tables map[string]int `json:"tables"`
	// Suppressions counts the kept suppressions, which have no note, by address.
	Suppressions map[string]int          `json:"suppressionsKept"`
	Tasks        person.ErasedTaskCounts `json:"tasks"` // tasks in Redis
}

// ReceiptRows is the number of rows of a table that contained an address of the person. A row with
// two addresses counts for both.
type ReceiptRows struct {
	Address string `json:"address"` // "" = found only by a CPF, CNPJ or id
	Table   string `json:"table"`
	Rows    int    `json:"rows"`
}

// Names in a receipt: tables, and uploaded files.
const (
	tableOutbox        = "email_outbox"
	tableIntakes       = "recipient_intakes"
	tableLogs          = "email_logs"
	tableEvents        = "email_events"
	tableNotifications = "ses_events"
	tableEntries       = "mailing_entries"
	tableMailings      = "mailings"
	tableLetters       = "dead_letters"
	tableReplays       = "dead_letter_replays"
	tableSuppressions  = "suppressions"
	tableRecipients    = "recipients"
	tableAttachments   = "attachments"
	uploadedFiles      = "uploaded files"
	storedFiles        = "stored files"
)

// place is an address in a table.
type place struct{ address, table string }

// ledger counts rows as they are erased.
type ledger struct {
	places map[place]int
	tables map[string]int
}

func newLedger() ledger { return ledger{places: map[place]int{}, tables: map[string]int{}} }

// add counts one row; without an address, it was found by a number or an id.
func (l *ledger) add(table string, addresses ...string) {
	l.tables[table]++
	if len(addresses) == 0 {
		addresses = []string{""}
	}
	for _, address := range addresses {
		l.places[place{address, table}]++
	}
}

// addIDs counts the rows with these ids.
func (l *ledger) addIDs(table string, ids []string, named addressesByID) {
	for _, id := range ids {
		l.add(table, named[id]...)
	}
}

// addressesByID maps row ids to the addresses by which the row, or the rows about an email, name
// the person.
type addressesByID map[string][]string

func addressesOf(rows []person.Row) addressesByID {
	named := addressesByID{}
	for _, r := range rows {
		named[r.ID.String()] = r.Addresses
	}
	return named
}

// savedLedger is how a ledger is stored with its erasure.
type savedLedger struct {
	Rows   []ReceiptRows  `json:"rows"`
	Tables map[string]int `json:"tables"`
}

func (l *ledger) encode() ([]byte, error) {
	encoded, err := json.Marshal(savedLedger{l.rows(), l.tables})
	if err != nil {
		return nil, fmt.Errorf("encode receipt: %w", err)
	}
	return encoded, nil
}

// save stores the ledger if it has changed. Only what the last batch changed before a crash is missing in the receipt of the
// run that continues this one.
func (e *erasure) save(ctx context.Context) error {
	if e.changed() == e.saved {
		return nil
	}
	encoded, err := e.ledger.encode()
	if err != nil {
		return err
	}
	if err := e.People.SaveReceipt(ctx, e.done.Run, encoded); err != nil {
		return err
	}
	e.saved = e.changed()
	return nil
}

// addSaved adds the rows that other erasures saved. No two erasures change the same row.
func (l *ledger) addSaved(encoded [][]byte) error {
	for _, one := range encoded {
		var saved savedLedger
		if err := json.Unmarshal(one, &saved); err != nil {
			return fmt.Errorf("decode receipt: %w", err)
		}
		for _, r := range saved.Rows {
			l.places[place{r.Address, r.Table}] += r.Rows
		}
		for table, rows := range saved.Tables {
			l.tables[table] += rows
		}
	}
	return nil
}

func (l *ledger) rows() []ReceiptRows {
	rows := make([]ReceiptRows, 0, len(l.places))
	for at, n := range l.places {
		rows = append(rows, ReceiptRows{at.address, at.table, n})
	}
	slices.SortFunc(rows, func(a, b ReceiptRows) int {
		return slices.Compare([]string{a.Address, a.Table}, []string{b.Address, b.Table})
	})
	return rows
}

// receipt creates the receipt of the erasure.
func (l *ledger) receipt(p person.Person, kept []suppression.Suppression, tasks person.ErasedTaskCounts) Receipt {
	r := Receipt{
		Addresses: list(p.Addresses), SharedAddresses: list(p.Shared), SharedExternalIDs: list(p.SharedIDs), SharedNumbers: beginnings(p.SharedNumbers), Rows: l.rows(), Tables: maps.Clone(l.tables), Suppressions: map[string]int{}, Tasks: tasks,
	}
	for _, s := range kept {
		r.Suppressions[s.Address]++
	}
	return r
}
