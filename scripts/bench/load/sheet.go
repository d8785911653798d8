package load

import (
	"bufio"
	"errors"
	"fmt"
	"os"
)

// SheetName and SheetCity are in every row of a CSV.
const (
	SheetName = "João Assunção"
	SheetCity = "São Luís"
)

// SheetAddress is the address in a row.
func SheetAddress(row int64) string { return fmt.Sprintf("cliente%09d@cliente.example", row) }

// SheetInvoice is the invoice in a row.
func SheetInvoice(row int64) string { return fmt.Sprintf("fatura-%09d", row) }

// WriteSheet writes a CSV of about 75 bytes per row.
func WriteSheet(name string, rows int) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	out := bufio.NewWriterSize(file, 1<<20)
	fmt.Fprint(out, "Nome,E-mail,Cidade,Fatura\r\n")
	for i := range rows {
		fmt.Fprintf(out, "%s,%s,%s,%s\r\n", SheetName, SheetAddress(int64(i)), SheetCity, SheetInvoice(int64(i)))
	}
	if err := errors.Join(out.Flush(), file.Close()); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}
