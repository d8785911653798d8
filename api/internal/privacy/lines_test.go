package privacy_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"email-gateway/api/internal/privacy"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/storetest"
)

// A file may contain the Unicode form of a domain.
func TestExport_FindsReadableDomains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(t, w.mailing, "nome;e-mail\nAna;ANA@clínica.example\nRui;rui@xn--clnica-4va.example\n")
	x, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, Address: "ana@xn--clnica-4va.example"})
	if err != nil || len(x.Files) != 1 || !slices.Equal(x.Files[0].Lines, []int{2}) {
		t.Errorf("%+v, %v", x.Files, err)
	}
}

func TestExport_FindsLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.SQL.ExecContext(t.Context(), `DELETE FROM mailing_entries`); err != nil { // entries also name lines of a file
		t.Fatal(err)
	}
	for text, found := range map[string]bool{
		"x;" + address + "\n": true, "x;" + strings.ToUpper(address): true, "x;a" + address + "\n": false, "x;" + address + ".br\n": false,
		"x;529.982.247-25;": true, "x;529 982 247 25": true, "x;529\u2011982\u2013247\u00a025": true, "x;529\x96982\x96247\xa025": true, "x;1529.982.247-25": false, "x;52998224725\r\n": true, "\"Veja " + address + ".\"": true,
		"x;titular 529.982.247-25 desde 2019": true, "x;1 529.982.247-25;": true, "x;529.982.247-251": false,
		"x;052998224725": true, "x;cpf52998224725 (Maria)": true, "x;52998224725x": true, "x;1052998224725": false,
		strings.Repeat("z;", 600_000) + cpf: true, "m\x00a\x00r\x00\n": false,
	} {
		w.put(t, w.mailing, "head\n"+text)
		x, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, TaxID: cpf})
		if err != nil || (len(x.Files) == 1) != found || found && !slices.Equal(x.Files[0].Lines, []int{2}) {
			t.Errorf("%.60q: %s, %v", text, fmt.Sprint(x.Files), err)
		}
	}
}

// The lines of a file are counted as an editor counts them, whatever ends them.
// A spreadsheet removes the leading zeros of a number. Letters next to it are a part of it only if it has letters itself.
func TestErase_NumberWithoutZeros(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		number, line string
		found        bool
	}{
		"CPF":                       {"05299822421", "5299822421;Maria;m@", true},
		"CPF with zeros":            {"05299822421", "00005299822421;Maria", true},
		"CPF with all zeros":        {"05299822421", "052.998.224-21", true},
		"thousands":                 {"05299822421", "Maria;5.299.822.421", true},
		"CPF, an amount":            {"05299822421", "15299822421", false},
		"CPF, another number":       {"05299822421", "152.998.224-21", false},
		"few digits":                {"00000012360", "12360;Maria", false},
		"few digits with zeros":     {"00000012360", "000.000.123-60;Maria", true},
		"CNPJ":                      {"00360305000104", "360305000104;Caixa", true},
		"CNPJ, another number":      {"00360305000104", "12.360.305/0001-04", false},
		"CNPJ with letters":         {"12ABC34501DE35", "cnpj 12.abc.345/01de-35", true},
		"CNPJ with letters, longer": {"12ABC34501DE35", "x12ABC34501DE35", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEmptyWorld(t)
			m := storetest.NewMailing(w.company, nil)
			if _, _, err := w.Store.IngestMailing(t.Context(), m, func(func(mailingstore.Line, error) bool) {}); err != nil {
				t.Fatal(err)
			}
			w.put(t, m.ID, "cpf;nome;e-mail\n"+c.line+"\n")
			done, err := w.erase(t.Context(), func(o *privacy.Order) { o.Query = privacy.Query{CompanyID: w.company, TaxID: c.number} })
			if want := map[bool]int{true: 1}[c.found]; err != nil || done.Files != want {
				t.Errorf("%d files are deleted, want %d (%v)", done.Files, want, err)
			}
		})
	}
}

func TestExport_CountsLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.SQL.ExecContext(t.Context(), `DELETE FROM mailing_entries`); err != nil {
		t.Fatal(err)
	}
	// Lines of 31 bytes: a reader whose parts have a size of a power of two splits CRLF too.
	many := func(end string) string {
		line := strings.Repeat("x", 31-len(end)) + end
		return strings.Repeat(line, 99_999) + cpf + end + strings.Repeat(line, 10) + cpf
	}
	wide := func(text string) string {
		units := utf16.Encode([]rune("\ufeff" + text))
		bytes := make([]byte, 0, 2*len(units))
		for _, u := range units {
			bytes = binary.LittleEndian.AppendUint16(bytes, u)
		}
		return string(bytes)
	}
	for name, c := range map[string]struct {
		text  string
		lines []int
	}{
		"CR":                             {"head\rx\r" + cpf + "\r\r" + cpf, []int{3, 5}},
		"CRLF":                           {"head\r\nx\r\n" + cpf + "\r\n\r\n" + cpf, []int{3, 5}},
		"LF":                             {"head\nx\n" + cpf + "\n\n" + cpf, []int{3, 5}},
		"mixed":                          {"head\rx\n" + cpf + "\r\n\r\r\n\n" + cpf, []int{3, 7}},
		"LF and CR":                      {"head\n\r" + cpf, []int{3}},
		"many, CR":                       {many("\r"), []int{100_000, 100_011}},
		"many, CRLF":                     {many("\r\n"), []int{100_000, 100_011}},
		"UTF-16":                         {wide("head\rBo\u017eena \u010dapek\r\n" + cpf + "\r"), []int{3}},
		"UTF-16 without byte order mark": {wide("head\rx\r\n" + cpf + "\r")[2:], []int{3}},
	} {
		w.put(t, w.mailing, c.text)
		x, err := w.archive.Export(t.Context(), storetest.Operator(), privacy.Query{CompanyID: w.company, TaxID: cpf})
		if err != nil || len(x.Files) != 1 || !slices.Equal(x.Files[0].Lines, c.lines) {
			t.Errorf("%s: %v, %v, want %v", name, x.Files, err, c.lines)
		}
	}
}
