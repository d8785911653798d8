package judge

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/scripts/chaos/load"
)

// accepted is a statement with a row of its own time.
func accepted(how string, phase, at int, f load.Facts) recorded {
	s := recorded{Statement: load.Statement{Phase: phase, How: how, Facts: f}}
	if !s.ends() {
		s.id = idAt(time.UnixMilli(int64(1_700_000_000_000+at)), 0)
	}
	return s
}

// In whatever order the statements were noted, the times at which they were accepted decide.
func TestPortraitOf(t *testing.T) {
	t.Parallel()
	full := load.Facts{ExternalID: "x", TaxIDHash: "h1", TaxID: true, RazaoSocial: "Empresa", Nome: "Maria", Email: "a@b"}
	bare := load.Facts{ExternalID: "x", Email: "c@d"}
	with := func(f load.Facts, change func(*load.Facts)) load.Facts {
		change(&f)
		return f
	}
	for name, tt := range map[string]struct {
		statements []recorded
		want       portrait
	}{
		"an email behind the import": {
			[]recorded{accepted(load.Imported, 0, 1, full), accepted(load.Named, 0, 2, bare)},
			portrait{Facts: with(full, func(f *load.Facts) { f.Email = "c@d" })},
		},
		"an email before the import": {
			[]recorded{accepted(load.Named, 0, 1, bare), accepted(load.Imported, 0, 2, full)},
			portrait{Facts: full},
		},
		"an older one fills what is empty": {
			[]recorded{accepted(load.Imported, 0, 1, load.Facts{RazaoSocial: "Empresa", Nome: "Joana", Email: "a@b"}), accepted(load.Listed, 0, 2, load.Facts{Nome: "João", Email: "a@b"})},
			portrait{Facts: load.Facts{RazaoSocial: "Empresa", Nome: "João", Email: "a@b"}},
		},
		"another hash": {
			[]recorded{accepted(load.Imported, 0, 1, full), accepted(load.Imported, 0, 2, with(bare, func(f *load.Facts) { f.TaxIDHash = "h2" }))},
			portrait{Facts: with(full, func(f *load.Facts) { f.TaxIDHash, f.TaxID, f.Email = "h2", false, "c@d" })},
		},
		"the same hash": {
			[]recorded{accepted(load.Imported, 0, 1, full), accepted(load.Imported, 0, 2, with(bare, func(f *load.Facts) { f.TaxIDHash = "h1" }))},
			portrait{Facts: with(full, func(f *load.Facts) { f.Email = "c@d" })},
		},
		"deleted": {
			[]recorded{accepted(load.Imported, 0, 1, full), accepted(load.Named, 0, 2, bare), accepted(load.Deleted, 1, 0, load.Facts{})},
			portrait{deleted: true},
		},
		"deleted and back": {
			[]recorded{accepted(load.Imported, 0, 1, full), accepted(load.Deleted, 1, 0, load.Facts{}), accepted(load.Named, 1, 2, bare)},
			portrait{Facts: bare},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 {
				if diff := cmp.Diff(tt.want, portraitOf(slices.Clone(tt.statements)), cmp.AllowUnexported(portrait{})); diff != "" {
					t.Error(diff)
				}
				slices.Reverse(tt.statements)
			}
		})
	}
}

// Each field that is not what was accepted is found.
func TestTryPerson(t *testing.T) {
	t.Parallel()
	full := load.Facts{ExternalID: "x", TaxIDHash: "h1", TaxID: true, RazaoSocial: "Empresa", Nome: "Maria", Email: "a@b"}
	for name, tt := range map[string]struct {
		statements []recorded
		got        portrait
		want       []string
	}{
		"kept":                 {[]recorded{accepted(load.Imported, 0, 1, full)}, portrait{Facts: full}, nil},
		"externalId":           {[]recorded{accepted(load.Imported, 0, 1, full)}, changed(full, func(f *portrait) { f.ExternalID = "" }), []string{Forgotten}},
		"hash":                 {[]recorded{accepted(load.Imported, 0, 1, full)}, changed(full, func(f *portrait) { f.TaxIDHash = "" }), []string{Forgotten}},
		"encrypted CPF":        {[]recorded{accepted(load.Imported, 0, 1, full)}, changed(full, func(f *portrait) { f.TaxID = false }), []string{Forgotten}},
		"company name":         {[]recorded{accepted(load.Imported, 0, 1, full)}, changed(full, func(f *portrait) { f.RazaoSocial = "" }), []string{Forgotten}},
		"name":                 {[]recorded{accepted(load.Imported, 0, 1, full)}, changed(full, func(f *portrait) { f.Nome = "Ana" }), []string{Forgotten}},
		"address":              {[]recorded{accepted(load.Imported, 0, 1, full)}, changed(full, func(f *portrait) { f.Email = "c@d" }), []string{Forgotten}},
		"deleted for nothing":  {[]recorded{accepted(load.Imported, 0, 1, full)}, changed(full, func(f *portrait) { f.deleted = true }), []string{Forgotten}},
		"not deleted":          {[]recorded{accepted(load.Imported, 0, 1, full), accepted(load.Deleted, 1, 0, load.Facts{})}, portrait{Facts: full}, []string{Forgotten}},
		"deleted, a name left": {[]recorded{accepted(load.Deleted, 1, 0, load.Facts{})}, portrait{Facts: load.Facts{Nome: "Maria", Email: "a@b"}, deleted: true}, nil},
		"deleted, a CPF left":  {[]recorded{accepted(load.Deleted, 1, 0, load.Facts{})}, portrait{Facts: load.Facts{TaxID: true}, deleted: true}, []string{Forgotten}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, id := New(nil, load.Notes{}, nil), uuid.New()
			j.tryPerson(id, tt.statements, map[uuid.UUID]portrait{id: tt.got})
			if got := promises(j); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
	j := New(nil, load.Notes{}, nil)
	j.tryPerson(uuid.New(), []recorded{accepted(load.Erased, 1, 0, load.Facts{})}, nil)
	j.tryPerson(uuid.New(), []recorded{accepted(load.Imported, 0, 1, full)}, nil)
	if got := promises(j); !slices.Equal(got, []string{Lost}) {
		t.Errorf("of one who is not there: %q", got)
	}
}

func changed(f load.Facts, change func(*portrait)) portrait {
	p := portrait{Facts: f}
	change(&p)
	return p
}

// Statements of all sorts come together by externalId or address, and one without a row is
// found.
func TestGroup(t *testing.T) {
	t.Parallel()
	first, second, third, row := uuid.New(), uuid.New(), uuid.New(), uuid.Must(uuid.NewV7())
	j := New(nil, load.Notes{Statements: []load.Statement{
		{How: load.Named, Facts: load.Facts{ExternalID: "x", Email: "1@b"}, Row: row},
		{How: load.Imported, Person: first, Facts: load.Facts{ExternalID: "x", Email: "2@b"}},
		{How: load.Deleted, Person: first, Phase: 1, Facts: load.Facts{ExternalID: "x"}},
		{How: load.Imported, Person: second, Facts: load.Facts{Email: "3@b"}},
		{How: load.Listed, Facts: load.Facts{Email: "3@b"}},
		{How: load.Imported, Person: second, Facts: load.Facts{Email: "4@b"}},
		{How: load.Named, Facts: load.Facts{ExternalID: "unknown", Email: "5@b"}, Row: row},
		{How: load.Imported, Person: third, Facts: load.Facts{ExternalID: "y", Email: "6@b"}},
		{How: load.Erased, Person: third, Phase: 1, Facts: load.Facts{ExternalID: "y"}},
	}}, nil)
	ids := []uuid.UUID{row}
	people := j.group(map[string][]uuid.UUID{"2@b": ids, "3@b": {row, first}}, map[string][]uuid.UUID{"3@b": ids})
	if len(people) != 3 || len(people[third]) != 1 || len(people[first]) != 3 || len(people[second]) != 2 {
		t.Errorf("%+v", people)
	}
	if got := promises(j); !slices.Equal(got, []string{Lost, TwoRows}) {
		t.Errorf("found %q", got)
	}
}
