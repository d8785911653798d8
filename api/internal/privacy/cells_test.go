package privacy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"email-gateway/api/internal/privacy"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// An invalid entry has the cell as it is in the file, which may name several people.
func TestErase_CellsOfInvalidEntries(t *testing.T) {
	t.Parallel()
	w := newEmptyWorld(t)
	const hers, his, longer, another, late = "maria@x.example", "joao@x.example", "ana.maria@x.example", "o'maria@x.example", "d'maria@x.example"
	named := []string{hers + "; " + his, "Maria <Maria@X.example>", hers + " " + hers, his + "," + hers + "..."}
	others := []string{longer + "; " + his, "j<" + hers + ".br>", "josé" + hers, late}
	entries := []*mailingstore.NewEntry{storetest.NewEntry(2), storetest.NewEntry(3)}
	entries[0].Email, entries[1].Email, entries[1].InvalidReason = his, another, "disposable"
	for _, cell := range slices.Concat(named, others) {
		entry := storetest.NewEntry(len(entries) + 2)
		entry.Email, entry.InvalidReason, entry.Fields = cell, "syntax", nil
		entries = append(entries, entry)
	}
	m := storetest.NewMailing(w.company, nil)
	if _, _, err := w.Store.IngestMailing(t.Context(), m, func(yield func(mailingstore.Line, error) bool) {
		for _, e := range entries {
			if !yield(mailingstore.Line{Entry: e}, nil) {
				return
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	// The expander found it invalid: it is the address of another person.
	w.Run(t, `UPDATE mailing_entries SET last_attempt = now() WHERE email = $1`, late)
	w.put(t, m.ID, "e-mail\n")
	toJoao := w.Accept(t, w.company, func(e *outbox.NewEmail) { e.Job.To, e.Job.Recipient.Email = his, his })

	q := privacy.Query{CompanyID: w.company, Address: hers}
	x, err := w.archive.Export(t.Context(), storetest.Operator(), q)
	if err != nil || len(x.Entries) != len(named) || len(x.Emails) != 0 {
		t.Fatalf("%d entries and %d emails, %v", len(x.Entries), len(x.Emails), err)
	}
	text, err := json.Marshal(x)
	if err != nil || strings.Contains(string(text), his) || !strings.Contains(string(text), "m***@x***.example; j***@x***.example") {
		t.Errorf("%s, %v", text, err)
	}

	done, err := w.erase(t.Context(), func(o *privacy.Order) { o.Query = q })
	if err != nil || !done.Complete() || done.Entries != len(named) {
		t.Fatalf("%+v, %v", done, err)
	}
	if r := done.Receipt; !slices.Equal(r.Addresses, []string{hers}) || byTable(r, hers)["mailing_entries"] != len(named) {
		t.Errorf("%+v", r)
	}
	left := w.column(t, `SELECT email FROM mailing_entries WHERE email NOT LIKE '%@erased.invalid'`)
	slices.Sort(left)
	want := append(slices.Clone(others), his, another)
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
	if status := w.status(t, toJoao); status != "PENDING" {
		t.Errorf("the email to the other person is %s", status)
	}
}
