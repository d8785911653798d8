package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/text/encoding/charmap"
)

// spreadsheet is a CSV as Excel in Brazil writes it: Windows-1252, semicolons, CRLF. Two rows in a hundred are
// invalid, one repeats the address of another.
type spreadsheet struct {
	file       []byte
	people     map[string]string // the good ones: address to name
	rows       int
	invalid    int
	duplicates int
}

// mailingRows returns the number of rows of a test's file; MAILING_ROWS sets a larger one.
func mailingRows(t *testing.T, usual int) int {
	t.Helper()
	text := os.Getenv("MAILING_ROWS")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("MAILING_ROWS is %q", text)
	}
	return n
}

func newSpreadsheet(t *testing.T, rows int) spreadsheet {
	t.Helper()
	s := spreadsheet{rows: rows, people: make(map[string]string, rows)}
	var text bytes.Buffer
	text.WriteString("Nome;E-mail;Cidade;CPF\r\n")
	for i := range rows {
		name, address, city := fmt.Sprintf("João Conceição %d", i), fmt.Sprintf("pessoa%d@cliente.example", i), "São Luís"
		switch i % 100 {
		case 13: // not an address
			fmt.Fprintf(&text, "%s;pessoa%d;%s;\r\n", name, i, city)
			s.invalid++
		case 57: // a CPF whose digits do not add up
			fmt.Fprintf(&text, "%s;%s;%s;529.982.247-26\r\n", name, address, city)
			s.invalid++
		case 83: // the previous address in upper case, a duplicate
			fmt.Fprintf(&text, "%s;PESSOA%d@Cliente.Example;%s;\r\n", name, i-1, city)
			s.duplicates++
		case 21: // a line end and the delimiter within quotes
			fmt.Fprintf(&text, "\"%s\";%s;\"%s;\r\nMA\";529.982.247-25\r\n", name, address, city)
			s.people[address] = name
		default:
			fmt.Fprintf(&text, "%s;%s;%s;\r\n", name, address, city)
			s.people[address] = name
		}
	}
	file, err := charmap.Windows1252.NewEncoder().Bytes(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	s.file = file
	return s
}
