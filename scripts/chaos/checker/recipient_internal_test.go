package checker

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/scripts/chaos/load"
)

// accepted returns a statement with a row that was accepted at the time at.
func accepted(how string, phase, at int, f load.Fields) storedStatement {
	s := storedStatement{Statement: load.Statement{Phase: phase, How: how, Fields: f}}
	if !s.deletes() {
		s.id = idAt(time.UnixMilli(int64(1_700_000_000_000+at)), 0)
	}
	return s
}

// The times of acceptance decide, in any order of the statements.
func TestExpectedState(t *testing.T) {
	t.Parallel()
	full := load.Fields{ExternalID: "x", TaxIDHash: "h1", TaxID: true, RazaoSocial: "Empresa", Nome: "Maria", Email: "a@b"}
	bare := load.Fields{ExternalID: "x", Email: "c@d"}
	with := func(f load.Fields, change func(*load.Fields)) load.Fields {
		change(&f)
		return f
	}
	for name, tt := range map[string]struct {
		statements []storedStatement
		want       recipientState
	}{
		"an email after the import": {
			[]storedStatement{accepted(load.Imported, 0, 1, full), accepted(load.Named, 0, 2, bare)},
			recipientState{Fields: with(full, func(f *load.Fields) { f.Email = "c@d" })},
		},
		"an email before the import": {
			[]storedStatement{accepted(load.Named, 0, 1, bare), accepted(load.Imported, 0, 2, full)},
			recipientState{Fields: full},
		},
		"an older one fills empty fields": {
			[]storedStatement{accepted(load.Imported, 0, 1, load.Fields{RazaoSocial: "Empresa", Nome: "Joana", Email: "a@b"}), accepted(load.Listed, 0, 2, load.Fields{Nome: "João", Email: "a@b"})},
			recipientState{Fields: load.Fields{RazaoSocial: "Empresa", Nome: "João", Email: "a@b"}},
		},
		"another hash": {
			[]storedStatement{accepted(load.Imported, 0, 1, full), accepted(load.Imported, 0, 2, with(bare, func(f *load.Fields) { f.TaxIDHash = "h2" }))},
			recipientState{Fields: with(full, func(f *load.Fields) { f.TaxIDHash, f.TaxID, f.Email = "h2", false, "c@d" })},
		},
		"the same hash": {
			[]storedStatement{accepted(load.Imported, 0, 1, full), accepted(load.Imported, 0, 2, with(bare, func(f *load.Fields) { f.TaxIDHash = "h1" }))},
			recipientState{Fields: with(full, func(f *load.Fields) { f.Email = "c@d" })},
		},
		"deleted": {
			[]storedStatement{accepted(load.Imported, 0, 1, full), accepted(load.Named, 0, 2, bare), accepted(load.Deleted, 1, 0, load.Fields{})},
			recipientState{deleted: true},
		},
		"deleted and imported again": {
			[]storedStatement{accepted(load.Imported, 0, 1, full), accepted(load.Deleted, 1, 0, load.Fields{}), accepted(load.Named, 1, 2, bare)},
			recipientState{Fields: bare},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 {
				if diff := cmp.Diff(tt.want, expectedState(slices.Clone(tt.statements)), cmp.AllowUnexported(recipientState{})); diff != "" {
					t.Error(diff)
				}
				slices.Reverse(tt.statements)
			}
		})
	}
}

// Each field that differs from the accepted data is a finding.
func TestCheckPerson(t *testing.T) {
	t.Parallel()
	full := load.Fields{ExternalID: "x", TaxIDHash: "h1", TaxID: true, RazaoSocial: "Empresa", Nome: "Maria", Email: "a@b"}
	for name, tt := range map[string]struct {
		statements []storedStatement
		got        recipientState
		want       []string
	}{
		"kept":                      {[]storedStatement{accepted(load.Imported, 0, 1, full)}, recipientState{Fields: full}, nil},
		"externalId":                {[]storedStatement{accepted(load.Imported, 0, 1, full)}, changed(full, func(f *recipientState) { f.ExternalID = "" }), []string{RecipientMismatch}},
		"hash":                      {[]storedStatement{accepted(load.Imported, 0, 1, full)}, changed(full, func(f *recipientState) { f.TaxIDHash = "" }), []string{RecipientMismatch}},
		"encrypted CPF":             {[]storedStatement{accepted(load.Imported, 0, 1, full)}, changed(full, func(f *recipientState) { f.TaxID = false }), []string{RecipientMismatch}},
		"company name":              {[]storedStatement{accepted(load.Imported, 0, 1, full)}, changed(full, func(f *recipientState) { f.RazaoSocial = "" }), []string{RecipientMismatch}},
		"name":                      {[]storedStatement{accepted(load.Imported, 0, 1, full)}, changed(full, func(f *recipientState) { f.Nome = "Ana" }), []string{RecipientMismatch}},
		"address":                   {[]storedStatement{accepted(load.Imported, 0, 1, full)}, changed(full, func(f *recipientState) { f.Email = "c@d" }), []string{RecipientMismatch}},
		"deleted without a request": {[]storedStatement{accepted(load.Imported, 0, 1, full)}, changed(full, func(f *recipientState) { f.deleted = true }), []string{RecipientMismatch}},
		"not deleted":               {[]storedStatement{accepted(load.Imported, 0, 1, full), accepted(load.Deleted, 1, 0, load.Fields{})}, recipientState{Fields: full}, []string{RecipientMismatch}},
		"deleted, a name left":      {[]storedStatement{accepted(load.Deleted, 1, 0, load.Fields{})}, recipientState{Fields: load.Fields{Nome: "Maria", Email: "a@b"}, deleted: true}, nil},
		"deleted, a CPF left":       {[]storedStatement{accepted(load.Deleted, 1, 0, load.Fields{})}, recipientState{Fields: load.Fields{TaxID: true}, deleted: true}, []string{RecipientMismatch}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, id := NewFindings(), uuid.New()
			recipientCheck{findings: found}.checkPerson(id, tt.statements, map[uuid.UUID]recipientState{id: tt.got})
			if got := promises(found); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
	found := NewFindings()
	c := recipientCheck{findings: found}
	c.checkPerson(uuid.New(), []storedStatement{accepted(load.Erased, 1, 0, load.Fields{})}, nil)
	c.checkPerson(uuid.New(), []storedStatement{accepted(load.Imported, 0, 1, full)}, nil)
	if got := promises(found); !slices.Equal(got, []string{Lost}) {
		t.Errorf("of a missing recipient: %q", got)
	}
}

func changed(f load.Fields, change func(*recipientState)) recipientState {
	p := recipientState{Fields: f}
	change(&p)
	return p
}

// Statements of all kinds are grouped by externalId or address, and one without a row is a finding.
func TestGroup(t *testing.T) {
	t.Parallel()
	first, second, third, row := uuid.New(), uuid.New(), uuid.New(), uuid.Must(uuid.NewV7())
	found := NewFindings()
	c := recipientCheck{findings: found, statements: []load.Statement{
		{How: load.Named, Fields: load.Fields{ExternalID: "x", Email: "1@b"}, Row: row},
		{How: load.Imported, Person: first, Fields: load.Fields{ExternalID: "x", Email: "2@b"}},
		{How: load.Deleted, Person: first, Phase: 1, Fields: load.Fields{ExternalID: "x"}},
		{How: load.Imported, Person: second, Fields: load.Fields{Email: "3@b"}},
		{How: load.Listed, Fields: load.Fields{Email: "3@b"}},
		{How: load.Imported, Person: second, Fields: load.Fields{Email: "4@b"}},
		{How: load.Named, Fields: load.Fields{ExternalID: "unknown", Email: "5@b"}, Row: row},
		{How: load.Imported, Person: third, Fields: load.Fields{ExternalID: "y", Email: "6@b"}},
		{How: load.Erased, Person: third, Phase: 1, Fields: load.Fields{ExternalID: "y"}},
	}}
	ids := []uuid.UUID{row}
	people := c.group(c.statements, map[string][]uuid.UUID{"2@b": ids, "3@b": {row, first}}, map[string][]uuid.UUID{"3@b": ids})
	if len(people) != 3 || len(people[third]) != 1 || len(people[first]) != 3 || len(people[second]) != 2 {
		t.Errorf("%+v", people)
	}
	if got := promises(found); !slices.Equal(got, []string{Lost, TwoRows}) {
		t.Errorf("found %q", got)
	}
}
