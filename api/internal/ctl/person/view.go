package person

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/privacy"
)

type exported struct {
	*privacy.Export
	out string
}

func (v exported) WriteText(io.Writer) {}

func (v exported) Failure() error {
	return errors.Join(undecryptableFiles(v.UndecryptableFiles), undecryptableNumbers(v.UndecryptableNumbers))
}

// undecryptableFiles reports files that cannot be decrypted. No program needs them any more.
func undecryptableFiles(mailings []uuid.UUID) error {
	if len(mailings) == 0 {
		return nil
	}
	names := make([]string, len(mailings))
	for i, id := range mailings {
		names[i] = id.String()
	}
	return fmt.Errorf("%s cannot be decrypted (mailing %s) and may name the person: check whether a key is missing in CPF_CNPJ_KEYS. "+
		"A damaged file can be deleted from the storage, since no program reads it any more. Then run this again",
		output.Count(len(mailings), "file", "files"), strings.Join(names, ", "))
}

// undecryptableNumbers reports rows whose number cannot be decrypted.
func undecryptableNumbers(rows []uuid.UUID) error {
	if len(rows) == 0 {
		return nil
	}
	return fmt.Errorf("the CPF or CNPJ of %s cannot be decrypted (see unreadNumbers) and was exported as stored: "+
		"if a key is missing in CPF_CNPJ_KEYS, add it and run this again; a damaged value cannot be recovered", output.Count(len(rows), "row", "rows"))
}

// exportedTo summarizes an export to a file.
type exportedTo struct {
	Out                string         `json:"out"`
	People             int            `json:"people"` // distinct CPFs and CNPJs
	Counts             map[string]int `json:"counts"`
	UndecryptableFiles []uuid.UUID    `json:"unreadFiles"`

	UndecryptableNumbers []uuid.UUID `json:"unreadNumbers"`

	sharedIDs, sharedNumbers []string
}

func (v exportedTo) Failure() error {
	return errors.Join(undecryptableFiles(v.UndecryptableFiles), undecryptableNumbers(v.UndecryptableNumbers))
}

func (v exportedTo) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Written to %s:\n\n", output.Printable(v.Out))
	var rows [][]string
	for _, name := range []string{"recipients", "emails", "copies", "emailLogs", "mailingEntries", "deadLetters", "suppressions", "idempotencyAnswers", "sesEvents", "files"} {
		rows = append(rows, []string{name, output.Thousands(v.Counts[name])})
	}
	output.Table(w, "  ", rows)
	if v.People > 1 {
		fmt.Fprintf(w, "\nIt contains data of %d people who share the address: do not give it to one of them. Select one with --cpf-cnpj.\n", v.People)
	}
	if len(v.sharedIDs) > 0 {
		fmt.Fprintf(w, "\nNot followed, because other people have them too: the external ids %s. If the person has another address with one of them, export that one with --email.\n", printable(v.sharedIDs))
	}
	if len(v.sharedNumbers) > 0 {
		fmt.Fprintf(w, "\nNot followed, because other addresses have them at the same time: the CPFs or CNPJs whose hashes begin with %s. If one is the person's own, export it with --cpf-cnpj.\n",
			printable(v.sharedNumbers))
	}
}

// listedAddresses is how many addresses a preview lists.
const listedAddresses = 10

// unconfirmed describes the erasure that --yes would start.
func unconfirmed(p privacy.Preview) error {
	whose := ""
	if p.KnownBy.People > 1 {
		whose = fmt.Sprintf(" of %d people who share the address (select one with --cpf-cnpj)", p.KnownBy.People)
	}
	addresses := p.KnownBy.Addresses
	of := "no address"
	if len(addresses) > 0 {
		of = output.Count(len(addresses), "address", "addresses") + " " + printable(addresses[:min(len(addresses), listedAddresses)])
	}
	if more := len(addresses) - listedAddresses; more > 0 {
		of += fmt.Sprintf(" and %d more", more)
	}
	kept := ""
	if len(p.KnownBy.SharedAddresses) > 0 {
		kept += fmt.Sprintf("; shared with other people, whose rows are kept: %s", printable(p.KnownBy.SharedAddresses))
	}
	if len(p.KnownBy.SharedExternalIDs) > 0 {
		kept += fmt.Sprintf("; external ids that other people have too, whose rows are kept: %s", printable(p.KnownBy.SharedExternalIDs))
	}
	if len(p.KnownBy.SharedNumbers) > 0 {
		kept += fmt.Sprintf("; CPFs or CNPJs that other addresses have at the same time, whose rows are kept: those whose hashes begin with %s (erase one that is the person's own with --cpf-cnpj)",
			printable(p.KnownBy.SharedNumbers))
	}
	return fmt.Errorf("%s%s would be erased, with %s%s; nothing was changed: check the addresses and repeat the command with --yes", output.Count(p.Rows, "row and file", "rows and files"), whose, of, kept)
}

func printable(texts []string) string {
	shown := make([]string, len(texts))
	for i, text := range texts {
		shown[i] = output.Printable(text)
	}
	return strings.Join(shown, ", ")
}

type erased struct{ privacy.Erased }

func (v erased) WriteText(w io.Writer) {
	output.Table(w, "", [][]string{
		{"cancelled, not sent", output.Thousands(v.Cancelled)},
		{"emails", output.Thousands(v.Emails)},
		{"copies of others' emails", output.Thousands(v.Copies)},
		{"logs", output.Thousands(v.EmailLogs)},
		{"entries of mailings", output.Thousands(v.Entries)},
		{"dead letters", output.Thousands(v.DeadLetters)},
		{"recipients", output.Thousands(v.Recipients)},
		{"suppressions", output.Thousands(v.Suppressions)},
		{"files deleted", output.Thousands(v.Files)},
	})
	fmt.Fprintln(w, "\nRows by address and table; a row is counted for each address that it contains:")
	var rows [][]string
	for _, r := range v.Receipt.Rows {
		rows = append(rows, []string{cmp.Or(output.Printable(r.Address), "(no address)"), r.Table, output.Thousands(r.Rows)})
	}
	output.Table(w, "  ", rows)
	for _, address := range v.Receipt.Addresses {
		if !slices.ContainsFunc(v.Receipt.Rows, func(r privacy.ReceiptRows) bool { return r.Address == address }) {
			fmt.Fprintf(w, "  %s is an address of the person, but no row contains it any more\n", output.Printable(address))
		}
	}
	for _, address := range v.Receipt.SharedAddresses {
		fmt.Fprintf(w, "\n%s is shared with other people: its suppressions are kept, and so are rows that contain nothing of this person but the address.\n", output.Printable(address))
	}
	for _, id := range v.Receipt.SharedExternalIDs {
		fmt.Fprintf(w, "\nThe external id %s is shared with other people: rows that contain nothing of this person but the id are kept. If the person has another address with it, erase that one with --email.\n", output.Printable(id))
	}
	for _, number := range v.Receipt.SharedNumbers {
		fmt.Fprintf(w, "\nThe CPF or CNPJ whose hash begins with %s is used with other addresses at the same time: their rows are kept. If it is the person's own, repeat the command with --cpf-cnpj.\n",
			output.Printable(number))
	}
	for _, address := range slices.Sorted(maps.Keys(v.Receipt.Suppressions)) {
		fmt.Fprintf(w, "\n%s stays suppressed, without a note (--forget-suppressions deletes the suppression).\n", output.Printable(address))
	}
	fmt.Fprintf(w, "\n%s removed from Redis.\n", output.Count(v.Receipt.Tasks.Removed, "task was", "tasks were"))
	if n := v.Receipt.Tasks.Open; n > 0 {
		fmt.Fprintf(w, "%s left: no dispatcher has checked Redis yet. A running dispatcher removes them.\n", output.Count(n, "possible task is", "possible tasks are"))
	}
}

func (v erased) Failure() error {
	switch {
	case v.Busy > 0:
		return fmt.Errorf("%s still being sent, locked by another transaction, or waiting for SES's delivery event: run this again in a few minutes", output.Count(v.Busy, "email is", "emails are"))
	case v.Writing > 0:
		return fmt.Errorf("%s that started before the erasure still open (a large upload, or one of pg_prepared_xacts?): run this again when it has finished", output.Count(v.Writing, "transaction is", "transactions are"))
	}
	if n := v.Receipt.Tasks.Open; n > 0 && len(v.UndecryptableFiles) == 0 {
		return fmt.Errorf("%s may still be in Redis, because no dispatcher has checked yet: start one to remove them. Everything else is done", output.Count(n, "task", "tasks"))
	}
	return undecryptableFiles(v.UndecryptableFiles)
}
