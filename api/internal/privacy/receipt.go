package privacy

import (
	"maps"
	"slices"

	"email-gateway/shared/store"
)

// Receipt says what an erasure has changed: every address, in which table, how many rows.
type Receipt struct {
	// Addresses are the person's, those too that no row named.
	Addresses []string `json:"addresses"`
	// SharedAddresses name other people too. Rows that name the person by such a one alone
	// are theirs as well: they stay, and so do its suppressions.
	SharedAddresses []string      `json:"sharedAddresses"`
	Rows            []ReceiptRows `json:"rows"`
	// Tables counts each row once, whatever number of addresses it has.
	Tables map[string]int `json:"tables"`
	// Suppressions are those that stay, without a note, by address.
	Suppressions map[string]int         `json:"suppressionsKept"`
	Tasks        store.ErasedTaskCounts `json:"tasks"` // of Redis
}

// ReceiptRows is the number of rows of a table that named the person by an address. A row
// with two of the addresses stands at both.
type ReceiptRows struct {
	Address string `json:"address"` // "": by a CPF, a CNPJ or an id alone
	Table   string `json:"table"`
	Rows    int    `json:"rows"`
}

// The names in a receipt: those of the tables, and what is none.
const (
	tableOutbox       = "email_outbox"
	tableIntakes      = "recipient_intakes"
	tableLogs         = "email_logs"
	tableEvents       = "email_events"
	tableNotices      = "ses_events"
	tableEntries      = "mailing_entries"
	tableMailings     = "mailings"
	tableLetters      = "dead_letters"
	tableReplays      = "dead_letter_replays"
	tableSuppressions = "suppressions"
	tableRecipients   = "recipients"
	uploadedFiles     = "uploaded files"
)

// place is an address in a table.
type place struct{ address, table string }

// ledger counts rows while they are erased.
type ledger struct {
	places map[place]int
	tables map[string]int
}

func newLedger() ledger { return ledger{places: map[place]int{}, tables: map[string]int{}} }

// add counts one row; without an address it was found by a number or an id.
func (l *ledger) add(table string, addresses ...string) {
	l.tables[table]++
	if len(addresses) == 0 {
		addresses = []string{""}
	}
	for _, address := range addresses {
		l.places[place{address, table}]++
	}
}

// addIDs counts the rows of these ids.
func (l *ledger) addIDs(table string, ids []string, named addressesByID) {
	for _, id := range ids {
		l.add(table, named[id]...)
	}
}

// addressesByID says by which addresses a row, or all that is about an email, names the
// person.
type addressesByID map[string][]string

func addressesOf(rows []store.PersonRow) addressesByID {
	named := addressesByID{}
	for _, r := range rows {
		named[r.ID.String()] = r.Addresses
	}
	return named
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

// receipt is what has been done about the person.
func (l *ledger) receipt(p store.Person, kept []store.Suppression, tasks store.ErasedTaskCounts) Receipt {
	r := Receipt{
		Addresses: list(p.Addresses), SharedAddresses: list(p.Shared), Rows: l.rows(), Tables: maps.Clone(l.tables), Suppressions: map[string]int{}, Tasks: tasks,
	}
	for _, s := range kept {
		r.Suppressions[s.Address]++
	}
	return r
}
